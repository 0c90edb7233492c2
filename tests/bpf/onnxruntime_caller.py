# SPDX-License-Identifier: Apache-2.0
"""A library that looks like ONNX Runtime's, and a process that calls through its table of functions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.bpf.conftest import SOURCES
from tests.bpf.test_layers_engine import Program

_CALLING = """
import threading
def load(path):
    global table
    library = ctypes.CDLL(path)
    library.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p)
    get_api = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32)(library.OrtGetApiBase()[0])
    table = get_api(24)
def call(slot, times, argument):
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(table[slot])
    for _ in range(times):
        function(argument)
""".strip().replace("\n", ";;")


def build_runtime(folder: Path, name: str, *flags: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / name
    command = ["gcc", "-O2", "-shared", "-fPIC", "-Wl,--build-id", *flags, "-o", built]
    subprocess.run([*command, SOURCES / "onnxruntime.c"], check=True, timeout=60)
    return built


class TableProgram(Program):
    """Calls slots of the table of a library that it has loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.do(_CALLING)

    def load(self, library: Path) -> None:
        self.do(f"load('{library}')")

    def call(self, slot: int, times: int, argument: int = 3) -> None:  # type: ignore[override]
        self.do(f"call({slot}, {times}, {argument})")

    def stick(self, slot: int) -> None:
        """A thread of it enters a call that never comes back."""
        self.do(f"threading.Thread(target=call, args=({slot}, 1, 1), daemon=True).start()")
