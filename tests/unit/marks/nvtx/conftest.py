# SPDX-License-Identifier: Apache-2.0
"""The injection library as it is shipped, beside a marks library whose probe points remember."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.marks.conftest import PACKAGE, POINTS, Recording

from hotstage_marks.nvtx import LIBRARY

RECORDING = "libhotstage_tests.so"

COUNTERS = ("too_deep", "unbalanced", "no_request", "too_many_started", "too_many_domains")
ASCII, UNICODE, REGISTERED = 1, 2, 3
NO_TRACKING = -2


class Event(ctypes.Structure):
    """`nvtxEventAttributes_t`, written down a second time."""

    _fields_ = (
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("payload", ctypes.c_uint64),
        ("message_type", ctypes.c_int32),
        ("message", ctypes.c_void_p),
    )


_FUNCTIONS = {
    # name: (module, index, result, arguments…) of NvtxCallbackIdCore and NvtxCallbackIdCore2
    "start_ex": (1, 4, ctypes.c_uint64, ctypes.POINTER(Event)),
    "start": (1, 5, ctypes.c_uint64, ctypes.c_char_p),
    "start_w": (1, 6, ctypes.c_uint64, ctypes.c_wchar_p),
    "end": (1, 7, None, ctypes.c_uint64),
    "push_ex": (1, 8, ctypes.c_int, ctypes.POINTER(Event)),
    "push": (1, 9, ctypes.c_int, ctypes.c_char_p),
    "push_w": (1, 10, ctypes.c_int, ctypes.c_wchar_p),
    "pop": (1, 11, ctypes.c_int),
    "domain_start": (5, 2, ctypes.c_uint64, ctypes.c_void_p, ctypes.POINTER(Event)),
    "domain_end": (5, 3, None, ctypes.c_void_p, ctypes.c_uint64),
    "domain_push": (5, 4, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Event)),
    "domain_pop": (5, 5, ctypes.c_int, ctypes.c_void_p),
    "register": (5, 10, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "register_w": (5, 11, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_wchar_p),
    "create": (5, 12, ctypes.c_void_p, ctypes.c_char_p),
    "create_w": (5, 13, ctypes.c_void_p, ctypes.c_wchar_p),
}
_SIZE = 16
_GetTable = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint)
)


class Callbacks(ctypes.Structure):
    _fields_ = (("struct_size", ctypes.c_size_t), ("module_table", _GetTable))


class Program:
    """What a program that contains NVTX is to the library: a table of functions to fill in, then calls."""

    def __init__(self, injection: ctypes.CDLL) -> None:
        self.injection = injection
        self.functions = {module: (ctypes.c_void_p * _SIZE)() for module in (1, 5)}
        self._tables = {module: (ctypes.c_void_p * _SIZE)() for module in (1, 5)}
        for module, table in self._tables.items():
            base = ctypes.addressof(self.functions[module])
            table[:] = [base + index * ctypes.sizeof(ctypes.c_void_p) for index in range(_SIZE)]
        self._get_table = _GetTable(self._give_table)
        self._callbacks = Callbacks(ctypes.sizeof(Callbacks), self._get_table)
        self._get_export = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(
            lambda table: ctypes.addressof(self._callbacks) if table == 1 else None
        )
        self._keep: list[object] = []

    def inject(self) -> int:
        return int(self.injection.InitializeInjectionNvtx2(self._get_export))

    def _give_table(self, module: int, table: object, size: object) -> int:
        if module not in self._tables:
            return 0
        table[0] = ctypes.addressof(self._tables[module])  # type: ignore[index]
        size[0] = _SIZE  # type: ignore[index]
        return 1

    def __getattr__(self, name: str) -> Callable[..., int]:
        module, index, result, *arguments = _FUNCTIONS[name]
        function = ctypes.CFUNCTYPE(result, *arguments)(self.functions[module][index])
        setattr(self, name, function)
        return function

    def event(self, message: bytes | int | None, kind: int = ASCII) -> ctypes.POINTER(Event):  # type: ignore[valid-type]
        """Attributes whose message lives as long as this object does."""
        pointer = ctypes.cast(message, ctypes.c_void_p).value if isinstance(message, bytes) else message
        self._keep.append(message)
        event = Event(version=3, size=ctypes.sizeof(Event), message_type=kind, message=pointer)
        return ctypes.pointer(event)

    @property
    def counters(self) -> dict[str, int]:
        values = (ctypes.c_uint64 * len(COUNTERS))()
        self.injection.hotstage_nvtx_counters(values, ctypes.c_size_t(len(COUNTERS)))
        return dict(zip(COUNTERS, values, strict=True))


@pytest.fixture(scope="session")
def recording_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped libhotstage_nvtx.so beside a libhotstage_marks.so that remembers its marks."""
    folder = tmp_path_factory.mktemp("injection")
    run = lambda *command: subprocess.run(command, check=True, cwd=folder)  # noqa: E731
    flags = ("-O2", "-fPIC", "-fvisibility=hidden", f"-I{PACKAGE / 'include'}")
    sources = sorted((PACKAGE / "native").glob("*.c"))
    run("gcc", *flags, "-c", *map(str, sources), str(PACKAGE.parents[1] / "tests/unit/marks/recorder.c"))
    run("objcopy", *(f"--weaken-symbol=hotstage_mark_{point}" for point in POINTS), "points.o")
    objects = [*(f"{source.stem}.o" for source in sources), "recorder.o"]
    run("gcc", "-shared", *objects, "-o", RECORDING, "-Wl,-Bsymbolic", f"-Wl,-soname,{RECORDING}")
    # By another name of the same length: this process has the real one already, and would get no second.
    linked = LIBRARY.read_bytes().replace(b"libhotstage_marks.so", RECORDING.encode())
    (folder / LIBRARY.name).write_bytes(linked)
    return folder


@pytest.fixture(scope="session")
def injection(recording_folder: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(recording_folder / "libhotstage_nvtx.so"))


@pytest.fixture
def fresh_program(recording_folder: Path, tmp_path: Path) -> Program:
    """A program of its own, whose domains nobody has used up."""
    program = Program(ctypes.CDLL(str(shutil.copy(recording_folder / "libhotstage_nvtx.so", tmp_path))))
    assert program.inject() == 1
    return program


@pytest.fixture
def program(injection: ctypes.CDLL) -> Program:
    program = Program(injection)
    assert program.inject() == 1
    return program


@pytest.fixture
def seen(injection: ctypes.CDLL, recording_folder: Path) -> Iterator[Recording]:
    yield Recording(ctypes.CDLL(str(recording_folder / RECORDING)))
