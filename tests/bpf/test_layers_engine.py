# SPDX-License-Identifier: Apache-2.0
"""Layers through discovery: the simulated runtime and NCCL on the simulated driver, a runtime on its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.bpf.conftest import SOURCES, Workload
from tests.bpf.targets import wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.engine import ProbeEngine
from hotstage.simhost.build import StubPaths, lay_out

PROGRAM = """
import ctypes, sys
print("ok", flush=True)
for line in sys.stdin:
    exec(line.rstrip(" -\\n").replace(";;", "\\n"))
    print("ok", flush=True)
"""
CALL = "p = ctypes.c_void_p(); s = ctypes.c_void_p()"


class Program(Workload):
    """Runs a line of Python at a time, which loads libraries and calls them."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.pid = self.process.pid
        self.wait("its start")


@pytest.fixture
def engine() -> Iterator[ProbeEngine]:
    started = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())  # type: ignore[arg-type]
    started.start()
    yield started
    started.close()


@pytest.fixture
def program() -> Iterator[Program]:
    started = Program()
    yield started
    started.close()


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> StubPaths:
    return lay_out(tmp_path_factory.mktemp("stubs"))


def attached(engine: ProbeEngine, pid: int, kind: str) -> int:
    """Symbols of that kind that are probed in the process; 0 before."""
    return sum(
        library.attached
        for process in engine.coverage().processes
        if process.pid == pid
        for library in process.libraries
        if library.kind == kind and library.since_ns is not None
    )


def waiting(engine: ProbeEngine, program: Program, kind: str) -> Callable[[], bool]:
    return lambda: attached(engine, program.pid, kind) > 0


def test_a_collective_of_a_process_on_the_simulated_host(
    engine: ProbeEngine, program: Program, stubs: StubPaths
) -> None:
    program.do(f"cuda = ctypes.CDLL('{stubs.libcuda}'); rt = ctypes.CDLL('{stubs.libcudart}')")
    program.do(f"nccl = ctypes.CDLL('{stubs.libnccl}')")
    for kind in ("libcuda", "libcudart", "libnccl"):
        wait_until(waiting(engine, program, kind), f"{kind} is attached")
    program.do(CALL)
    program.do("rt.cudaSetDevice(0); rt.cudaStreamCreateWithFlags(ctypes.byref(s), 0)")
    program.do("[rt.cudaMalloc(ctypes.byref(p), 4096) for _ in range(13)]")
    program.do("[rt.cudaStreamSynchronize(s) for _ in range(17)]")
    program.do("class Id(ctypes.Structure): _fields_ = [('b', ctypes.c_char * 128)]")
    program.do("comm = ctypes.c_void_p(); nccl.ncclCommInitRank(ctypes.byref(comm), 8, Id(), 5)")
    program.do("[nccl.ncclAllReduce(p, p, ctypes.c_size_t(1000), 7, 0, comm, s) for _ in range(19)]")
    totals = engine.totals()
    mine = totals.by_pid[program.pid]
    assert mine["cuMemAlloc_v2"].counted == 13
    assert mine["cuStreamSynchronize"].counted == 17
    assert mine["cuLaunchKernel"].counted == 19
    assert totals.other_layers["runtime"] == {}
    assert totals.other_layers["library"]["ncclAllReduce"].counted == 19
    (made,) = engine.coverage().communicators
    assert (made.pid, made.rank, made.size, made.calls, made.size_bytes) == (program.pid, 5, 8, 19, 19 * 4000)


def test_launches_of_a_runtime_are_probed_where_it_has_no_driver(
    engine: ProbeEngine, program: Program, tmp_path: Path
) -> None:
    runtime = tmp_path / "libcudart.so.12"
    parts = [SOURCES / "layers_runtime.c", SOURCES / "layers_driver.c"]
    subprocess.run(
        ["gcc", "-O0", "-fcf-protection=none", "-shared", "-fPIC", "-o", runtime, *parts], check=True
    )
    program.do(f"rt = ctypes.CDLL('{runtime}')")
    wait_until(waiting(engine, program, "libcudart"), "the runtime is attached")
    first = attached(engine, program.pid, "libcudart")
    wait_until(lambda: attached(engine, program.pid, "libcudart") > first, "its launches are attached, too")
    program.do("dim = ctypes.c_uint64(1 << 32 | 1)")
    program.do("[rt.cudaLaunchKernel(ctypes.c_void_p(1), dim, 1, dim, 1, None, 0, None) for _ in range(11)]")
    program.do("[rt.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(4096)) for _ in range(7)]")
    found = engine.totals()
    assert found.by_pid == {}
    counted = {name: count.counted for name, count in found.other_layers["runtime"].items()}
    assert counted == {"cudaLaunchKernel": 11, "cudaMalloc": 7}
