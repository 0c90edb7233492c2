# SPDX-License-Identifier: Apache-2.0
"""The stub libcudart: every call goes on to the driver's exported functions, and is counted there."""

from __future__ import annotations

import subprocess
import sys

from hotstage.simhost import truth

PROGRAM = """
import ctypes, os, sys
from ctypes import byref, c_size_t, c_uint64, c_void_p
runtime = ctypes.CDLL(sys.argv[1])
class Dim3(ctypes.Structure): _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]
memory = c_uint64()
def check(code): assert code == 0, code
check(runtime.cudaMalloc(byref(memory), c_size_t(4096)))
for kind in (1, 2, 3): check(runtime.cudaMemcpyAsync(memory, memory, c_size_t(16), kind, None))
def launch(blocks):
    return runtime.cudaLaunchKernel(c_void_p(1), Dim3(blocks, 1, 1), Dim3(32, 1, 1), None, c_size_t(0), None)
for _ in range(23): check(launch(2))
check(runtime.cudaStreamSynchronize(None)); check(runtime.cudaDeviceSynchronize())
print(os.getpid(), launch(0), runtime.cudaMalloc(byref(memory), c_size_t(1 << 40)), runtime.cudaFree(memory))
"""


def test_runtime_calls_become_driver_calls_with_their_arguments_and_errors(stubs, page):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(stubs.libcudart)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    pid, bad_grid, too_much, free = done.stdout.split()
    assert (bad_grid, too_much, free) == ("1", "2", "0")
    assert truth.calls_made(stubs.folder / f"truth-{pid}") == {
        "cuInit": 1,
        "cuDevicePrimaryCtxRetain": 1,
        "cuCtxSetCurrent": 1,
        "cuMemAlloc_v2": 2,
        "cuMemFree_v2": 1,
        "cuMemcpyHtoDAsync_v2": 1,
        "cuMemcpyDtoHAsync_v2": 1,
        "cuMemcpyDtoDAsync_v2": 1,
        "cuLaunchKernel": 24,
        "cuStreamSynchronize": 1,
        "cuCtxSynchronize": 1,
    }
