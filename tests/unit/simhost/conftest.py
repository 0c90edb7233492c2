# SPDX-License-Identifier: Apache-2.0
"""The stub libraries, compiled once; programs that load them run in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hotstage.simhost import build
from hotstage.simhost.gpus import GpuModel
from hotstage.simhost.page import PAGE_FILE, Page, shared_page


@pytest.fixture
def stubs(tmp_path: Path) -> build.StubPaths:
    return build.lay_out(tmp_path / "lib")


@pytest.fixture
def page(stubs: build.StubPaths):
    """The shared page of two GPUs, 1 MiB of memory each."""
    with shared_page(stubs.folder / PAGE_FILE) as page:
        GpuModel(page)
        for device in page.devices:
            device.total_bytes, device.reserved_bytes = 1 << 20, 0
        yield page


@pytest.fixture
def driver(stubs: build.StubPaths, page: Page) -> Callable[[str], str]:
    """Runs Python statements in a process that has `cuda`, the stub libcuda; returns what they print."""

    def run(statements: str, **environment: str) -> str:
        prelude = f"""
import ctypes, time
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL({str(stubs.libcuda)!r})
def check(code):
    assert code == 0, code
def value(kind, function, *arguments):
    out = kind()
    check(function(byref(out), *arguments))
    return out.value
def open_context(ordinal=0):
    check(cuda.cuInit(0))
    context = c_void_p(value(c_void_p, cuda.cuDevicePrimaryCtxRetain, ordinal))
    check(cuda.cuCtxSetCurrent(context))
    return context
def allocate(bytes):
    out = c_uint64()
    return cuda.cuMemAlloc_v2(byref(out), c_size_t(bytes)), out
def launch(microseconds, stream=None):
    return cuda.cuLaunchKernel(c_void_p(1), microseconds, 1, 1, 128, 1, 1, 0, stream, None, None)
"""
        done = subprocess.run(
            [sys.executable, "-c", prelude + statements],
            capture_output=True,
            text=True,
            timeout=20,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
