# SPDX-License-Identifier: Apache-2.0
"""The marks as they are shipped, with probe points that remember instead of doing nothing."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = Path(__file__).parents[3] / "agent" / "hotstage_marks"
POINTS = ("stage_begin", "stage_end", "span_begin", "span_end", "request_begin", "request_end", "tokens")
ARGUMENTS = {
    "stage_begin": 3,
    "stage_end": 4,
    "span_begin": 3,
    "span_end": 3,
    "request_begin": 1,
    "request_end": 3,
    "tokens": 3,
}


class Mark(ctypes.Structure):
    _fields_ = (("point", ctypes.c_uint64), ("values", ctypes.c_uint64 * 4))


class Request(ctypes.Structure):
    """`struct hotstage_request`, written down a second time."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("request_hash", ctypes.c_uint64),
        ("id", ctypes.c_char * 64),
        ("endpoint", ctypes.c_char * 48),
        ("instance", ctypes.c_char * 32),
        ("model", ctypes.c_char * 32),
        ("traceparent", ctypes.c_char * 56),
        ("input_digest", ctypes.c_uint64),
    )


class Recording:
    """What a watcher would have seen, since the test began."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._count = ctypes.c_uint64.in_dll(library, "recorded_count")
        self._marks = (Mark * 4096).in_dll(library, "recorded")
        self._count.value = 0

    @property
    def marks(self) -> list[tuple[str | int, ...]]:
        """(point, arguments…), in order."""
        seen = []
        for mark in self._marks[: self._count.value]:
            name = POINTS[mark.point - 1]
            seen.append((name, *mark.values[: ARGUMENTS[name]]))
        return seen

    @property
    def request(self) -> Request:
        return Request.in_dll(self.library, "recorded_request")


@pytest.fixture(scope="session")
def recording_extension(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("marks")
    run = lambda *command: subprocess.run(command, check=True, cwd=folder)  # noqa: E731
    flags = ("-O2", "-fPIC", "-fvisibility=hidden", f"-I{PACKAGE / 'include'}")
    sources = sorted((PACKAGE / "native").glob("*.c"))
    include = sysconfig.get_path("include")
    run("gcc", *flags, f"-I{include}", "-c", *map(str, sources), str(Path(__file__).with_name("recorder.c")))
    weaken = [f"--weaken-symbol=hotstage_mark_{point}" for point in POINTS]
    run("objcopy", *weaken, "marks.o")
    objects = [f"{source.stem}.o" for source in sources]
    run("gcc", "-shared", *objects, "recorder.o", "-o", "_native.so", "-Wl,-Bsymbolic")
    spec = importlib.util.spec_from_file_location("_native", folder / "_native.so")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, ctypes.CDLL(str(folder / "_native.so"))


@pytest.fixture
def marks(recording_extension: tuple[ModuleType, ctypes.CDLL]) -> ModuleType:
    return recording_extension[0]


@pytest.fixture
def seen(recording_extension: tuple[ModuleType, ctypes.CDLL]) -> Iterator[Recording]:
    yield Recording(recording_extension[1])
