# SPDX-License-Identifier: Apache-2.0
"""The ledger through the engine: found by itself, whole or not, over a restart of the agent and kill -9."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import SOURCES, Build
from tests.bpf.memory_target import DEVICE, LIBRARY, POOL, TOO_MUCH, MemoryTarget
from tests.bpf.targets import wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.frame.memory_table import MemoryTable
from hotstage.frame.memory_types import Memory, MemoryOfProcess
from hotstage.probes.coverage import LibraryState
from hotstage.probes.engine import ProbeEngine
from hotstage.stages.labels import StageLabels


@pytest.fixture
def engine(objects: Path) -> Iterator[Callable[[], ProbeEngine]]:
    """Starts agents' probes; each takes the place of the one before."""
    with ExitStack() as stack:
        running: list[ProbeEngine] = []

        def start() -> ProbeEngine:
            while running:
                running.pop().close()
            made = ProbeEngine(
                ProbesConfig(xid=False, driver=False, scheduler=False, process_linger_seconds=0.1),
                SystemClock(),
            )
            made.start()
            stack.callback(made.close)
            running.append(made)
            return made

        yield start


@pytest.fixture
def target(build: Build, tmp_path: Path) -> Iterator[MemoryTarget]:
    """A process on a library called as the real one, so that the engine finds it."""
    cuda, program = tmp_path / "libcuda.so.1", tmp_path / "memory"
    for command in (
        [
            *("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,--build-id", "-o", cuda),
            *LIBRARY,
        ],
        [
            "-o",
            program,
            SOURCES / "memory.c",
            cuda,
            build.marks,
            f"-Wl,-rpath,{tmp_path}:{build.marks.parent}",
        ],
    ):
        subprocess.run(["gcc", "-O2", "-Wall", "-pthread", *command], check=True)
    made = MemoryTarget(program)
    yield made
    made.close()


def await_attached(engine: ProbeEngine, pid: int) -> None:
    def is_attached() -> bool:
        return any(
            library.kind == "libcuda" and library.state is LibraryState.ATTACHED and library.since_ns
            for process in engine.coverage().processes
            if process.pid == pid
            for library in process.libraries
        )

    wait_until(is_attached, "the target is attached", 10)


def memory_of(engine: ProbeEngine) -> Memory:
    """As a slow tick makes it, on a host without NVML."""
    engine.read_slow()
    sample = engine.ledger.read(SystemClock().monotonic_ns(), {})
    assert sample is not None
    return MemoryTable().make(sample, None, StageLabels())


def test_a_process_is_whole_until_the_agent_restarts(
    engine: Callable[[], ProbeEngine], target: MemoryTarget
) -> None:
    first = engine()
    await_attached(first, target.pid)
    target.do("primary", 0)
    target.new(0, DEVICE, 1009)
    target.new(1, POOL, 501)
    target.new(2, DEVICE, TOO_MUCH)
    (process,) = [each for each in memory_of(first).processes if each.pid == target.pid]
    assert (process.is_complete, process.live_bytes, process.device) == (True, 1510, 0)
    assert [(each.stage, each.live_bytes) for each in process.stages] == [("none", 1510)]
    assert {each.kind: each.failed_count for each in process.kinds} == {"device": 1, "pool": 0}
    assert sum(slot.count for slot in process.ages) == 2

    second = engine()
    await_attached(second, target.pid)
    target.new(3, DEVICE, 7)
    target.free(0, DEVICE)
    own = [each for each in memory_of(second).processes if each.pid == target.pid]
    assert [each.live_bytes for each in own] == [None] * len(own)
    assert not any(each.is_complete for each in own)
    assert sum(each.unmatched_frees for each in own) == 1
    assert sum(kind.live_bytes for each in own for kind in each.kinds) == 7


def test_what_a_killed_process_had_is_freed_with_it(
    engine: Callable[[], ProbeEngine], target: MemoryTarget
) -> None:
    probes = engine()
    await_attached(probes, target.pid)
    target.do("primary", 0)
    target.new(0, DEVICE, 1009)
    before = memory_of(probes).ended_bytes
    target.process.kill()
    target.process.wait(10)
    wait_until(lambda: memory_of(probes).ended_bytes == before + 1009, "its memory is counted as freed", 10)
    assert not [each for each in memory_of(probes).processes if each.pid == target.pid]


def test_of_what_nobody_watches_nothing_is_shown_and_nothing_is_whole_afterwards(
    engine: Callable[[], ProbeEngine], target: MemoryTarget
) -> None:
    def own() -> list[MemoryOfProcess]:
        return [each for each in memory_of(probes).processes if each.pid == target.pid]

    probes = engine()
    await_attached(probes, target.pid)
    target.do("primary", 0)
    target.new(0, DEVICE, 1009)
    assert [each.live_bytes for each in own()] == [1009]
    probes.restraint.let_go("a driver update")
    assert own() == []
    target.free(0, DEVICE)
    target.new(1, DEVICE, 5)
    probes.restraint.take_up()
    await_attached(probes, target.pid)
    target.new(2, DEVICE, 7)
    assert [each.live_bytes for each in own()] == [None]
    assert sum(kind.live_bytes or 0 for each in own() for kind in each.kinds) == 7
