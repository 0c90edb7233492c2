# SPDX-License-Identifier: Apache-2.0
"""Probes are taken back on a real kernel: all of them within a second, those of one process and no other's,
those that a list denies; what is counted before and after stays exact.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.config.deny import DenyEntry
from hotstage.config.settings import ProbesConfig
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.engine import ProbeEngine

sys.path.insert(0, str(Path(__file__).parent))
from targets import Target, build_library, driver_of, first_bytes, wait_until

pytestmark = pytest.mark.kernel

StartEngine = Callable[..., ProbeEngine]


@pytest.fixture
def start_engine() -> Iterator[StartEngine]:
    engines: list[ProbeEngine] = []

    def start(**settings: object) -> ProbeEngine:
        engine = ProbeEngine(ProbesConfig(xid=False, **settings), SystemClock())  # type: ignore[arg-type]
        engines.append(engine)
        engine.start()
        return engine

    yield start
    for engine in engines:
        engine.close()


def is_covered(engine: ProbeEngine, pid: int) -> Callable[[], bool]:
    return lambda: (lib := driver_of(engine, pid)) is not None and lib.since_ns is not None


def counted(engine: ProbeEngine, pid: int, name: str = "cuLaunchKernel") -> int:
    calls = engine.totals().by_pid.get(pid, {})
    return calls[name].counted if name in calls else 0


def launch_offset(library: Path) -> int:
    with library.open("rb") as file:
        return read_elf(file.fileno()).functions["cuLaunchKernel"].offset + 10


@pytest.mark.parametrize("rung", ["S", "M"])
def test_everything_goes_within_a_second_under_load_and_comes_back_as_a_new_epoch(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target], rung: str
) -> None:
    library = build_library(tmp_path)
    target, flood = start_target(), start_target()
    for each in (target, flood):
        each.open(library)
    engine = start_engine(rung=rung)
    wait_until(is_covered(engine, target.pid), "the target is attached")
    target.call("cuLaunchKernel", 101)
    assert flood.process.stdin
    flood.process.stdin.write('["call", "cuMemAlloc_v2", 300000]\n')
    flood.process.stdin.flush()
    began = time.monotonic()
    engine.restraint.let_go("a test")
    assert time.monotonic() - began < 1.0
    assert first_bytes(target.pid, library, launch_offset(library))[0] == 0x74  # the jump as it was linked
    coverage = engine.coverage()
    assert (coverage.off, coverage.attached) == ("a test", 0)
    lib = driver_of(engine, target.pid)
    assert lib is not None and (lib.state, lib.attached, lib.since_ns, lib.reason) == (
        "off",
        0,
        None,
        "a test",
    )
    assert engine.read_fast().is_blind
    target.call("cuLaunchKernel", 1009)
    before = counted(engine, flood.pid, "cuMemAlloc_v2")
    assert counted(engine, target.pid) == 101
    late = start_target()  # found while they are off, attached when they come back
    late.open(library)

    engine.restraint.take_up()
    for each in (target, late):
        wait_until(is_covered(engine, each.pid), "it is attached again")
    target.call("cuLaunchKernel", 211)
    late.call("cuLaunchKernel", 17)
    assert (counted(engine, target.pid), counted(engine, late.pid)) == (312, 17)
    assert not engine.read_fast().is_blind
    ended = [epoch for epoch in engine.coverage().epochs if epoch.pid == target.pid]
    lib = driver_of(engine, target.pid)
    assert len(ended) == 1 and lib is not None and lib.since_ns is not None
    assert ended[0].until_ns < lib.since_ns
    assert counted(engine, flood.pid, "cuMemAlloc_v2") >= before


def test_a_call_that_was_open_when_its_probes_went_is_made_and_hangs_no_more(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    target = start_target()
    target.open(build_library(tmp_path))
    engine = start_engine()
    target.tell("thread")
    wait_until(lambda: bool((engine.read_fast().threads["depth"] == 1).any()), "the call is open")
    engine.restraint.let_go("a test")
    assert not (engine.read_fast().threads["call"] != 0).any()
    totals = engine.totals()
    assert (totals.by_call["cuEventSynchronize"].counted, totals.open) == (1, 0)


def test_who_starts_switched_off_attaches_nothing(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    target = start_target()
    target.open(build_library(tmp_path))
    engine = ProbeEngine(ProbesConfig(xid=False), SystemClock())
    engine.restraint.let_go("since before the start")
    try:
        engine.start()
        lib = driver_of(engine, target.pid)
        assert lib is not None and (lib.state, lib.attached) == ("off", 0)
        target.call("cuLaunchKernel", 5)
        engine.restraint.take_up()
        wait_until(is_covered(engine, target.pid), "it is attached")
        target.call("cuLaunchKernel", 7)
        assert counted(engine, target.pid) == 7
    finally:
        engine.close()


def test_one_process_is_let_go_and_the_others_of_its_library_are_counted_on(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    dear, other = start_target(), start_target()
    for each in (dear, other):
        each.open(library)
    engine = start_engine(rung="S")
    for each in (dear, other):
        each.call("cuLaunchKernel", 11)
    engine.restraint.withdraw(dear.pid, "too dear")
    offset = launch_offset(library)
    assert first_bytes(dear.pid, library, offset)[0] == 0x74
    assert first_bytes(other.pid, library, offset)[0] == 0xCC
    for each in (dear, other):
        each.call("cuLaunchKernel", 103)
    assert (counted(engine, dear.pid), counted(engine, other.pid)) == (11, 114)
    gone = driver_of(engine, dear.pid)
    assert gone is not None and (gone.state, gone.reason, gone.attached) == ("off", "too dear", 0)
    kept = driver_of(engine, other.pid)
    assert kept is not None and (kept.state, kept.attached, kept.from_start) == ("attached", 4, False)

    late = start_target()
    late.open(library)
    wait_until(is_covered(engine, late.pid), "a process that comes now is attached by itself")
    late.call("cuLaunchKernel", 29)
    dear.call("cuLaunchKernel", 1)
    engine.restraint.restore(dear.pid)
    wait_until(is_covered(engine, dear.pid), "it is attached again")
    for each in (dear, other, late):
        each.call("cuLaunchKernel", 31)
    assert [counted(engine, each.pid) for each in (dear, other, late)] == [42, 145, 60]


def test_a_library_comes_back_for_all_when_the_process_ends_that_it_was_let_go_for(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    dear, other = start_target(), start_target()
    for each in (dear, other):
        each.open(library)
    engine = start_engine(rung="M")  # no links of one process: the library goes for both
    engine.restraint.withdraw(dear.pid, "too dear")
    other.call("cuLaunchKernel", 13)
    assert counted(engine, other.pid) == 0
    lib = driver_of(engine, other.pid)
    assert lib is not None and (lib.state, lib.reason) == ("off", "too dear")
    dear.end()
    wait_until(is_covered(engine, other.pid), "the other one is attached again")
    other.call("cuLaunchKernel", 19)
    assert counted(engine, other.pid) == 19


def test_a_denied_library_is_left_alone_and_coverage_names_the_entry(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    denied, allowed = build_library(tmp_path / "denied", salt="a"), build_library(tmp_path / "allowed")
    first, second = start_target(), start_target()
    first.open(denied)
    second.open(allowed)
    entry = DenyEntry(name="vendor bug 7", reason="it crashed", path="*/denied/*")
    engine = start_engine(deny=[entry])
    wait_until(is_covered(engine, second.pid), "the other library is attached")
    lib = driver_of(engine, first.pid)
    assert lib is not None and lib.state == "denied"
    assert lib.reason == "denied by 'vendor bug 7': it crashed"
    assert first_bytes(first.pid, denied, launch_offset(denied))[0] == 0x74


def test_a_switch_that_is_thrown_again_and_again_and_a_second_agent_leave_counts_exact(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    target = start_target()
    target.open(library)
    first = start_engine()
    wait_until(is_covered(first, target.pid), "the target is attached")
    held = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        first.restraint.let_go("a test")
        first.restraint.take_up()
    wait_until(is_covered(first, target.pid), "it is attached again")
    # Others of this host come and go meanwhile; what leaks with each throw would be ten.
    assert len(list(Path("/proc/self/fd").iterdir())) < held + 10
    second = start_engine()
    wait_until(is_covered(second, target.pid), "the second one attaches, too")
    target.call("cuLaunchKernel", 211)
    target.call("cuMemAlloc_v2", 101)
    for engine in (first, second):
        assert (counted(engine, target.pid), counted(engine, target.pid, "cuMemAlloc_v2")) == (211, 101)
    second.close()
    target.call("cuMemAlloc_v2", 7)
    assert counted(first, target.pid, "cuMemAlloc_v2") == 108


def test_map_memory_is_told_by_map(start_engine: StartEngine) -> None:
    engine = start_engine()
    by_map = engine.coverage().map_bytes
    assert sum(by_map.values()) == engine.map_bytes()
    assert by_map["threads"] > 1 << 20 > by_map["settings"] > 0
