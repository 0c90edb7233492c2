# SPDX-License-Identifier: Apache-2.0
"""The server's GPU code, in a process of its own: it opens a device for the life of that process."""

from __future__ import annotations

import subprocess
import sys

from hotstage.simhost import truth

PROGRAM = """
import os, sys, time
from pathlib import Path
from hotstage.simhost.gpu import Gpu, GpuError
from hotstage.simhost.service import StageWork
gpu = Gpu(Path(sys.argv[1]))
print(os.getpid())
def work(device_bytes=4096):
    return StageWork(0.02, 1, launches=7, copies=3, input_bytes=3000, device_bytes=device_bytes)
"""


def run(stubs, statements):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + statements, str(stubs.server)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    pid, *printed = done.stdout.split()
    return truth.calls_made(stubs.folder / f"truth-{pid}"), printed


def test_loading_makes_no_call(stubs, page):
    made, _ = run(stubs, "")
    assert made == {}


def test_a_stage_is_the_calls_an_engine_makes(stubs, page):
    statements = """
gpu.open(weight_bytes=4096, graph_nodes=5)
gpu.open_thread()
began = time.monotonic(); gpu.run(work(), 2.0); print(time.monotonic() - began)
gpu.decode(steps=3, step_seconds=0.001, launches=2)
"""
    made, (seconds,) = run(stubs, statements)
    assert 0.04 <= float(seconds) < 0.08
    expected = {
        "cuMemAllocAsync": 1,
        "cuMemFreeAsync": 1,
        "cuMemcpyHtoDAsync_v2": 3,
        "cuEventSynchronize": 1,
        "cuGraphLaunch": 3,
        "cuStreamSynchronize": 3,
        "cuLaunchKernel": 5 + 7 + 3 * 2,
    }
    assert {name: made[name] for name in expected} == expected
    assert page.processes[0].used_bytes == 4096


def test_a_failed_allocation_is_an_error_with_its_code(stubs, page):
    statements = """
gpu.open(weight_bytes=4096, graph_nodes=1)
gpu.open_thread()
try: gpu.run(work(device_bytes=1 << 30), 1.0)
except GpuError as error: print(error.code)
gpu.run(work(), 1.0)
"""
    _, printed = run(stubs, statements)
    assert printed == ["2"]
    assert page.processes[0].failed_allocations == 1
