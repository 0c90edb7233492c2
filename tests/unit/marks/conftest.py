# SPDX-License-Identifier: Apache-2.0
"""The marks as they are shipped, with probe points that remember instead of doing nothing."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = Path(__file__).parents[3] / "agent" / "hotstage_marks"
ARGUMENTS = {
    "stage_begin": 3,
    "stage_end": 4,
    "span_begin": 3,
    "span_end": 3,
    "request_begin": 1,
    "request_end": 3,
    "tokens": 3,
    "stage_name": 1,
    "batch_begin": 2,
    "batch_end": 3,
    "embedding": 4,
}
POINTS = tuple(ARGUMENTS)
"""In the order of the recorder's numbers; of a batch's end its id, the restored word, the members."""


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


class Member(ctypes.Structure):
    """`struct hotstage_batch_member`, written down a second time."""

    _fields_ = (
        ("request_hash", ctypes.c_uint64),
        ("tokens", ctypes.c_uint32),
        ("stage", ctypes.c_uint8),
        ("modality", ctypes.c_uint8),
        ("pad", ctypes.c_uint16),
    )


class Part(ctypes.Structure):
    """`struct hotstage_batch`, written down a second time."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("batch_id", ctypes.c_uint64),
        ("word", ctypes.c_uint64),
        ("tokens_total", ctypes.c_uint32),
        ("members", ctypes.c_uint16),
        ("members_total", ctypes.c_uint16),
        ("member", Member * 64),
    )


class Recording:
    """What a watcher would have seen, since the test began."""

    member_type = Member

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._count = ctypes.c_uint64.in_dll(library, "recorded_count")
        self._marks = (Mark * 4096).in_dll(library, "recorded")
        self._count.value = 0
        self._part_count = ctypes.c_uint64.in_dll(library, "recorded_part_count")
        self._parts = (Part * 64).in_dll(library, "recorded_parts")
        self._part_count.value = 0

    @property
    def marks(self) -> list[tuple[str | int, ...]]:
        """(point, arguments…), in order."""
        seen = []
        for mark in self._marks[: self._count.value]:
            name = POINTS[mark.point - 1]
            seen.append((name, *mark.values[: ARGUMENTS[name]]))
        return seen

    @property
    def parts(self) -> list[Part]:
        """What batches said at their ends, in order."""
        return self._parts[: self._part_count.value]

    @property
    def name(self) -> str:
        """The name that was told last."""
        return bytes((ctypes.c_char * 32).in_dll(self.library, "recorded_name")).rstrip(b"\0").decode()

    @property
    def request(self) -> Request:
        return Request.in_dll(self.library, "recorded_request")


def build_recording(folder: Path) -> Path:
    """The library, the extension and the recorder in one file; without the recorder: `silent.so`."""
    run = lambda *command: subprocess.run(command, check=True, cwd=folder)  # noqa: E731
    flags = ("-O2", "-fPIC", "-DPy_LIMITED_API=0x030b0000", "-fvisibility=hidden", f"-I{PACKAGE / 'include'}")
    native = PACKAGE / "native"
    sources = sorted([*native.glob("*.c"), *native.glob("python/*.c")])
    include = sysconfig.get_path("include")
    run("gcc", *flags, f"-I{include}", "-c", *map(str, sources), str(Path(__file__).with_name("recorder.c")))
    weaken = [f"--weaken-symbol=hotstage_mark_{point}" for point in POINTS]
    run("objcopy", *weaken, "points.o")
    objects = [f"{source.stem}.o" for source in sources]
    run("gcc", "-shared", *objects, "-o", "silent.so", "-Wl,-Bsymbolic")
    run("gcc", "-shared", *objects, "recorder.o", "-o", "_native.so", "-Wl,-Bsymbolic")
    return folder / "_native.so"


def load(file: Path) -> tuple[ModuleType, ctypes.CDLL]:
    spec = importlib.util.spec_from_file_location("_native", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, ctypes.CDLL(str(file))


@pytest.fixture(scope="session")
def recording_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_recording(tmp_path_factory.mktemp("marks"))


@pytest.fixture(scope="session")
def recording_extension(recording_file: Path) -> tuple[ModuleType, ctypes.CDLL]:
    return load(recording_file)


@pytest.fixture
def marks(recording_extension: tuple[ModuleType, ctypes.CDLL]) -> ModuleType:
    return recording_extension[0]


@pytest.fixture
def seen(recording_extension: tuple[ModuleType, ctypes.CDLL]) -> Iterator[Recording]:
    yield Recording(recording_extension[1])


@pytest.fixture
def unwatched(recording_file: Path) -> ModuleType:
    """The marks in a file that no agent of this host looks for: nobody listens."""
    return load(recording_file.with_name("silent.so"))[0]


@pytest.fixture
def fresh(recording_file: Path, tmp_path: Path) -> tuple[ModuleType, Recording]:
    """(marks, seen) of a copy with tables and counters of its own, as a new process has."""
    module, library = load(shutil.copy(recording_file, tmp_path / "_native.so"))
    return module, Recording(library)
