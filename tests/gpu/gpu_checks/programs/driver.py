# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver's interface by ctypes, every call tallied by the symbol it was made through.

Prototypes are ours, after the public documentation. A symbol that the library lacks is never called.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

Pointer = ctypes.c_void_p
Size = ctypes.c_size_t
Word = ctypes.c_uint64

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute, cuda.h
_CAPTURE_RELAXED = 2  # CUstreamCaptureMode, cuda.h


class CudaError(Exception):
    """A driver call answered otherwise than it was to; `code` is CUDA's."""

    def __init__(self, symbol: str, code: int) -> None:
        super().__init__(f"{symbol} answered {code}")
        self.code = code


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared_bytes")),
        ("stream", Pointer),
        ("attributes", Pointer),
        ("attribute_count", ctypes.c_uint),
    )


class Driver:
    """libcuda.so.1, opened and not yet initialised. Thread-safe."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self._lock = threading.Lock()
        self._made: Counter[str] = Counter()
        self._functions: dict[str, Any] = {}

    def has(self, symbol: str) -> bool:
        """Whether the library exports it."""
        return hasattr(self.library, symbol)

    def function(self, symbol: str) -> Any:
        """The exported function, to be called with ctypes values; such calls are tallied by `add`."""
        found = self._functions.get(symbol)
        if found is None:
            found = self._functions[symbol] = getattr(self.library, symbol)
        return found

    def call(self, symbol: str, *arguments: Any, expect: int = 0) -> None:
        """One call, tallied. Raises CudaError when the answer is not `expect`."""
        function = self.function(symbol)
        self.add(symbol, 1)
        code = function(*arguments)
        if code != expect:
            raise CudaError(symbol, code)

    def add(self, symbol: str, calls: int) -> None:
        """Tally calls made by other means."""
        with self._lock:
            self._made[symbol] += calls

    def made(self) -> dict[str, int]:
        """Calls by symbol since the start."""
        with self._lock:
            return dict(self._made)


class Session:
    """An initialised driver: device 0, its primary context current here, an empty kernel, a stream."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        driver.call("cuInit", ctypes.c_uint(0))
        device = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(device), 0)
        self.device = device.value
        self.context = self.out("cuDevicePrimaryCtxRetain", self.device)
        driver.call("cuCtxSetCurrent", self.context)
        self._ptx = ptx(self.capability()).encode() + b"\0"
        module = self.out("cuModuleLoadData", self._ptx)
        self.kernel = self.out("cuModuleGetFunction", module, b"empty")
        self.stream = self.new_stream()

    def capability(self) -> int:
        """Compute capability as one number: 90 for an H200."""
        parts = []
        for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
            value = ctypes.c_int()
            self.driver.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self.device)
            parts.append(value.value)
        return parts[0] * 10 + parts[1]

    def out(self, symbol: str, *arguments: Any) -> Pointer:
        """A call that writes a handle or an address through its first argument."""
        found = Pointer()
        self.driver.call(symbol, ctypes.byref(found), *arguments)
        return found

    def new_stream(self) -> Pointer:
        return self.out("cuStreamCreate", ctypes.c_uint(1))  # 1: not synchronised with the default stream

    def launch(self, stream: Pointer, symbol: str = "cuLaunchKernel") -> None:
        one = ctypes.c_uint(1)
        nothing = ctypes.c_uint(0)
        self.driver.call(symbol, self.kernel, one, one, one, one, one, one, nothing, stream, None, None)

    def capture(self, launches: int = 1) -> Pointer:
        """A graph of so many launches, captured on a stream of its own."""
        stream = self.new_stream()
        self.driver.call("cuStreamBeginCapture_v2", stream, ctypes.c_int(_CAPTURE_RELAXED))
        for _ in range(launches):
            self.launch(stream)
        graph = Pointer()
        self.driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.driver.call("cuStreamDestroy_v2", stream)
        return graph

    def timed(self, symbol: str, times: int, *arguments: Any) -> None:
        """The same call many times, as fast as ctypes goes; all of them tallied. Raises CudaError."""
        function: Callable[..., int] = self.driver.function(symbol)
        self.driver.add(symbol, times)
        wrong = 0
        for _ in range(times):
            wrong = function(*arguments) or wrong
        if wrong:
            raise CudaError(symbol, wrong)


def ptx(capability: int) -> str:
    """An empty kernel in PTX that the driver can compile for a GPU of this capability."""
    version, target = ("7.0", 80) if capability >= 80 else ("6.0", 70) if capability >= 70 else ("5.0", 50)
    return f".version {version}\n.target sm_{target}\n.address_size 64\n.visible .entry empty() {{ ret; }}\n"
