# SPDX-License-Identifier: Apache-2.0
"""True fragmentation, on the simulated host: an allocation fails with enough free, and what is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.bpf.targets import wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState
from hotstage.frame.memory_table import MemoryTable
from hotstage.frame.memory_types import MemoryOfGpu
from hotstage.probes.engine import ProbeEngine
from hotstage.simhost.build import lay_out
from hotstage.simhost.gpus import GPUS, GpuModel
from hotstage.simhost.page import PAGE_FILE, shared_page
from hotstage.stages.labels import StageLabels

GIB = 1 << 30
PROGRAM = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()

def begin():
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0

assert cuda.cuInit(0) == 0
begin()

def allocate(size):
    at = ctypes.c_uint64()
    return at if cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)) == 0 else None

def fill(size):
    while at := allocate(size):
        held.append(at)

held = []
fill(1 << 30)
for at in held[::2]:
    cuda.cuMemFree_v2(at)
print("cut", flush=True)
for line in sys.stdin:
    if line == "touch\\n":  # a process that is watched late is known by its calls, its device by its context
        cuda.cuMemFree_v2(allocate(512)), cuda.cuCtxSynchronize(), cuda.cuMemFreeHost(None)
        begin()
    if line == "fill\\n":
        fill(1 << 29)
        fill(1 << 24)
    print("failed" if allocate(2 << 30) is None else "served", flush=True)
"""
NVML = """
import pynvml
pynvml.nvmlInit()
memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
print(memory.total, memory.used)
"""


@pytest.fixture
def libraries(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment of a process on the simulated host."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    lay_out(folder)
    with shared_page(folder / PAGE_FILE) as page:
        GpuModel(page)
        yield {**os.environ, "LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def start(libraries: dict[str, str]) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts processes whose GPU is full of holes of 1 GiB, half of it free."""
    started: list[subprocess.Popen[str]] = []

    def one() -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-c", PROGRAM], env=libraries, text=True, **pipes))
        assert started[-1].stdout
        assert started[-1].stdout.readline() == "cut\n"
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def ask(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{words}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def devices(libraries: dict[str, str]) -> DeviceSample:
    """What the simulated NVML says of the first GPU."""
    said = subprocess.run(
        [sys.executable, "-c", NVML], env=libraries, check=True, capture_output=True, text=True
    )
    total, used = map(int, said.stdout.split())
    rows = np.zeros(1, DEVICE_DTYPE)
    rows["uuid"], rows["pci_bus_id"] = GPUS[0].uuid.encode(), GPUS[0].pci_bus_id.encode()
    rows["memory_total_bytes"], rows["memory_used_bytes"] = total, used
    return DeviceSample(SystemClock().monotonic_ns(), DevicesState.sampling, "", rows, is_fresh=True)


def test_an_allocation_that_fails_with_enough_free_says_how_cut_up_it_is_at_least(
    objects: Path, libraries: dict[str, str], start: Callable[[], subprocess.Popen[str]]
) -> None:
    process = start()  # before the probes: nothing better is known of it
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False, scheduler=False), SystemClock())
    table = MemoryTable()

    def gpu() -> MemoryOfGpu:
        sample = engine.ledger.read(SystemClock().monotonic_ns(), {})
        assert sample
        (found,) = table.make(sample, devices(libraries), StageLabels()).gpus
        return found

    try:
        engine.start()
        wait_until(
            lambda: any(
                library.since_ns
                for each in engine.coverage().processes
                if each.pid == process.pid
                for library in each.libraries
                if library.kind == "libcuda"
            ),
            "the process is attached",
            20,
        )
        assert gpu().fragmentation.basis == "unknown"
        assert ask(process, "touch") == "failed"
        found = gpu()
        free = found.free_bytes
        assert free and free > 30 * GIB
        assert found.fragmentation.basis == "inferred"
        assert found.fragmentation.ratio == pytest.approx(1 - 2 * GIB / free)
        assert found.fragmentation.largest_free_bytes == 2 * GIB
        assert found.fragmentation.false_oom_risk
        assert found.failed_fitting >= 1
        assert ask(process, "fill") == "failed"
        found = gpu()
        assert found.free_bytes < 0.02 * found.total_bytes
        assert (found.fragmentation.ratio, found.fragmentation.false_oom_risk) == (None, None)
        assert found.fragmentation.why == "less than 2 % of the device is free"
    finally:
        engine.close()
