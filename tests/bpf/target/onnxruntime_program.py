# SPDX-License-Identifier: Apache-2.0
"""Runs a model by ONNX Runtime's C interface, as C programs do: `onnxruntime_program.py LIBRARY MODEL`.

A line of its input is a piece of Python; the functions here are what it calls. Slots as in OrtApi
(onnxruntime_c_api.h). Answers `ok` for each line.
"""

import ctypes
import sys
import threading
from pathlib import Path

_VERSION = 24
MESSAGE, CREATE_ENV, FROM_FILE, FROM_ARRAY, RUN, OPTIONS, TENSOR, MEMORY = 2, 3, 7, 8, 9, 10, 49, 69
RELEASE_SESSION, WITH_BINDING, BINDING, BIND_INPUT, BIND_OUTPUT, RUN_ASYNC = 95, 133, 134, 136, 137, 260


class Runtime:
    """The library's table, an environment, and a tensor for each side of the model."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        library.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p)
        first = library.OrtGetApiBase()[0]
        self.table = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32)(first)(_VERSION)
        self.environment = self.new(CREATE_ENV, 2, b"test")
        self.options = self.new(OPTIONS)
        self.memory = self.new(MEMORY, 1, 0)
        self.numbers = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)()
        shape = (ctypes.c_int64 * 1)(4)
        self.x, self.y = (
            self.new(TENSOR, self.memory, numbers, ctypes.c_size_t(16), shape, ctypes.c_size_t(1), 1)
            for numbers in self.numbers
        )

    def call(self, slot: int, *arguments: object) -> int:
        """The status that a call returns; 0 is none."""
        return ctypes.CFUNCTYPE(ctypes.c_void_p)(self.table[slot])(*arguments) or 0

    def new(self, slot: int, *arguments: object) -> ctypes.c_void_p:
        """What a call makes, its last argument."""
        made = ctypes.c_void_p()
        status = self.call(slot, *arguments, ctypes.byref(made))
        if status:
            text = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(self.table[MESSAGE])(status)
            raise RuntimeError(text.decode())
        return made

    def session(self, model: bytes) -> ctypes.c_void_p:
        return self.new(FROM_ARRAY, self.environment, model, ctypes.c_size_t(len(model)), self.options)

    def run(self, session: ctypes.c_void_p, name: bytes = b"x") -> int:
        inputs, given, one, outputs, taken = self._sides(name)
        return self.call(RUN, session, None, inputs, given, one, outputs, one, taken)

    def run_async(self, session: ctypes.c_void_p) -> None:
        """Hand it in and wait until it has been told of."""
        inputs, given, one, outputs, taken = self._sides(b"x")
        is_done = threading.Event()
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_size_t, ctypes.c_void_p)
        told = kind(lambda user, results, count, status: is_done.set())
        assert not self.call(RUN_ASYNC, session, None, inputs, given, one, outputs, one, taken, told, None)
        assert is_done.wait(10)

    def _sides(self, name: bytes) -> tuple[object, ...]:
        given, taken = (ctypes.c_void_p * 1)(self.x.value), (ctypes.c_void_p * 1)(self.y.value)
        return (ctypes.c_char_p * 1)(name), given, ctypes.c_size_t(1), (ctypes.c_char_p * 1)(b"y"), taken

    def binding(self, session: ctypes.c_void_p) -> ctypes.c_void_p:
        bound = self.new(BINDING, session)
        assert not self.call(BIND_INPUT, bound, b"x", self.x)
        assert not self.call(BIND_OUTPUT, bound, b"y", self.y)
        return bound


if __name__ == "__main__":
    library_path, model_path = sys.argv[1:]
    names = {"Runtime": Runtime, "path": library_path, "path_of_model": model_path.encode()}
    names |= {"model": Path(model_path).read_bytes()}
    names |= {name: value for name, value in globals().items() if name.isupper()}
    print("ok", flush=True)
    for line in sys.stdin:
        exec(line.rstrip(" -\n"), names)
        print("ok", flush=True)
