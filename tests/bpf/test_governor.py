# SPDX-License-Identifier: Apache-2.0
"""The governor on a real kernel: calibrated costs, levels that change what a call costs and nothing of its
count, and a flood that is stepped down, let go, and tried again.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.bpf.conftest import Probes, Workload

from hotstage.clock import SystemClock
from hotstage.config.governor import GovernorConfig
from hotstage.config.settings import ProbesConfig
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.maps.levels import Level, LevelMaps
from hotstage.probes.restraint.costs import Costs, calibrate

sys.path.insert(0, str(Path(__file__).parent))
from targets import build_library, covered_kinds, libraries_of, wait_until

pytestmark = pytest.mark.kernel

SYNC = 64  # cuStreamSynchronize


def levels_of(probes: Probes) -> LevelMaps:
    names = ("process_levels", "level_generation", "probe_hits")
    return LevelMaps({name: probes.loader.map_fd(name) for name in names})


def is_in_order(costs: Costs) -> bool:
    """The dearer of two is measured as that."""
    told = costs.told_bare is not None and costs.told is not None and 20 < costs.told_bare < costs.told
    return (
        told
        and costs.launch is not None
        and costs.timed is not None
        and costs.timed_counts is not None
        and costs.sample is not None
        and 0 <= costs.sample < costs.launch  # a look-up costs little: noise may hide it
        and 1.2 * costs.launch < costs.timed
        and costs.timed_counts < costs.timed
    )


@pytest.mark.parametrize("with_nvtx", [True, False])
def test_costs_are_measured_and_leave_nothing_behind(probes: Probes, with_nvtx: bool) -> None:
    before = len(probes.maps.calls()[0])
    lost = probes.losses()
    for _ in range(6):  # what else runs here may fall on one turn more than on another
        costs = calibrate(probes.loader, probes.maps, levels_of(probes), SystemClock(), with_nvtx=with_nvtx)
        print(costs)
        if is_in_order(costs):
            break
    assert is_in_order(costs)
    assert costs.is_known and costs.basis.startswith("calibrated on this host at 20")
    assert costs.launch is not None and costs.timed is not None and costs.timed_counts is not None
    assert 20 < costs.launch < 50_000
    assert costs.mark is not None and (costs.nvtx is not None) is with_nvtx and costs.step is not None
    assert costs.told is not None and costs.told < 50_000
    assert len(probes.maps.calls()[0]) == before and probes.losses() == lost
    assert not len(probes.maps.read_fast(0).events) and not len(probes.maps.names.drain_stacks())


def test_counts_are_exact_through_every_change_of_level(probes: Probes, workload: Workload) -> None:
    levels = levels_of(probes)
    made = 0
    for level in (Level.full, Level.counts_only, Level.tails_only, Level.counts_only, Level.no_stacks):
        levels.set(workload.pid, level)
        workload.call("wait", 101)
        workload.launch(53)
        made += 101
    levels.set(workload.pid, Level.full)
    assert probes.count(workload.pid, SYNC) == made
    (state,) = probes.threads(workload.pid)
    assert (int(state["depth"]), int(state["counted_at_entry"])) in ((0, 0), (0, 202))


def test_at_tails_only_time_is_summed_and_no_histogram_grows(probes: Probes, workload: Workload) -> None:
    levels = levels_of(probes)
    levels.set(workload.pid, Level.tails_only)
    workload.call("wait", 31)
    levels.set(workload.pid, Level.full)
    workload.call("wait", 7)
    sample = probes.maps.read_slow(0)
    rows = [at for at, key in enumerate(sample.keys) if key["tgid"] == workload.pid and key["call"] == SYNC]
    assert sum(int(sample.stats["count"][at]) for at in rows) == 38
    assert sum(int(sample.histogram(at).sum()) for at in rows) == 7
    assert all(int(sample.stats["total_ns"][at]) > 0 for at in rows)


def test_what_a_thread_allocates_is_followed_at_counts_only_only_where_it_changes_state(
    probes: Probes, workload: Workload
) -> None:
    levels_of(probes).set(workload.pid, Level.counts_only)
    workload.call("wait", 3)
    stats = probes.rows(workload.pid, SYNC)[1]
    assert int(stats["count"].sum()) == 3 and int(stats["total_ns"].sum()) == 0
    levels_of(probes).set(workload.pid, Level.full)


def test_marks_are_counted_for_their_cost(probes: Probes, workload: Workload) -> None:
    before = levels_of(probes).hits().get(workload.pid, (0, 0))[0]
    workload.do("stage_begin", "-", 8 | 1 << 8, 0, 0)
    assert levels_of(probes).hits()[workload.pid][0] > before


@pytest.fixture
def engine(objects: Path) -> Iterator[ProbeEngine]:
    config = GovernorConfig(window_seconds=0.6, quiet_seconds=0.4)
    engine = ProbeEngine(ProbesConfig(xid=False), SystemClock(), governor=config)
    engine.start()
    yield engine
    engine.close()


def level_of(engine: ProbeEngine, pid: int) -> str:
    return next((each.level for each in engine.restraint.view().processes if each.pid == pid), "unknown")


def govern_until(
    engine: ProbeEngine, condition: Callable[[], bool], what: str, seconds: float = 15.0
) -> None:
    def step() -> bool:
        engine.restraint.govern(engine.read_slow(), engine.pids())
        time.sleep(0.05)
        return condition()

    wait_until(step, what, seconds)


FLOOD = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
typedef long call(long, long, long, long, long, long, long, long, long);
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	char name[64];
	double seconds, least;
	unsigned long made, calls;
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ready");
	/* NAME SECONDS PAUSE_US: bursts of 2,000 calls; how many, and the least ns a call of a burst */
	while (scanf("%63s %lf %lu", name, &seconds, &calls) == 3) {
		call *function = (call *)dlsym(library, name);
		double end = now() + seconds;
		for (made = 0, least = 1; now() < end;) {
			double began = now();
			for (int i = 0; i < 2000; i++)
				function(0, 4096, 0, 0, 0, 0, 0, 0, 0);
			double took = (now() - began) / 2000;
			if (took < least)
				least = took;
			made += 2000;
			if (calls)
				usleep(calls);
		}
		printf("%lu %.1f\n", made, least * 1e9);
	}
	return 0;
}
"""


@pytest.fixture
def flood(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    source = tmp_path / "flood.c"
    source.write_text(FLOOD)
    subprocess.run(["gcc", "-O2", "-o", tmp_path / "flood", source], check=True, timeout=60)
    library = build_library(tmp_path)
    process = subprocess.Popen(
        [tmp_path / "flood", library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait(10)
    assert process.stdin
    process.stdin.close()
    process.stdout.close()


def tell(flood: subprocess.Popen[str], name: str, seconds: float, pause_us: int = 0) -> None:
    assert flood.stdin
    flood.stdin.write(f"{name} {seconds} {pause_us}\n")
    flood.stdin.flush()


def answer(flood: subprocess.Popen[str]) -> tuple[int, float]:
    """(calls made, least ns a call)."""
    assert flood.stdout
    ready, _, _ = select.select([flood.stdout], [], [], 20)
    assert ready, "the flood answered within 20 s"
    made, least = flood.stdout.readline().split()
    return int(made), float(least)


def test_a_flood_of_launches_is_let_go_runs_untraced_and_comes_back_when_it_has_calmed_down(
    engine: ProbeEngine, flood: subprocess.Popen[str]
) -> None:
    wait_until(lambda: is_probed(engine, flood.pid), "the flood's library is attached")
    tell(flood, "cuLaunchKernel", 0.2)
    first, traced_ns = answer(flood)
    assert engine.totals().by_pid[flood.pid]["cuLaunchKernel"].counted == first
    tell(flood, "cuLaunchKernel", 6)
    govern_until(engine, lambda: level_of(engine, flood.pid) == "detached", "it is let go")
    wait_until(lambda: not is_probed(engine, flood.pid), "no probe is left")
    answer(flood)
    tell(flood, "cuLaunchKernel", 0.2)
    _, untraced_ns = answer(flood)
    print(f"traced {traced_ns:.0f} ns a call, let go {untraced_ns:.1f} ns")
    assert untraced_ns * 20 < traced_ns
    state = next(each for each in engine.restraint.view().processes if each.pid == flood.pid)
    assert state.reason is not None and "of its CPU time" in state.reason and state.retry_ns is not None
    lib = libraries_of(engine, flood.pid)[0]
    assert lib.state == "off" and f"let go for process {flood.pid}" in (lib.reason or "")

    govern_until(engine, lambda: level_of(engine, flood.pid) == "full", "it is counted, then as before")
    wait_until(lambda: is_probed(engine, flood.pid), "it is attached again")
    before = engine.totals().by_pid[flood.pid]["cuLaunchKernel"].counted
    tell(flood, "cuLaunchKernel", 0.01)
    made, _ = answer(flood)
    assert engine.totals().by_pid[flood.pid]["cuLaunchKernel"].counted == before + made


def test_a_flood_of_waits_is_counted_alone_and_exactly(objects: Path, flood: subprocess.Popen[str]) -> None:
    # What counting alone costs is allowed here, so that this level holds.
    config = GovernorConfig(window_seconds=0.6, quiet_seconds=60, limit_ratio=0.5, detach_ratio=1)
    engine = ProbeEngine(ProbesConfig(xid=False), SystemClock(), governor=config)
    engine.start()
    try:
        wait_until(lambda: is_probed(engine, flood.pid), "the flood's library is attached")
        tell(flood, "cuStreamSynchronize", 4)
        govern_until(engine, lambda: level_of(engine, flood.pid) == "counts_only", "it is counted alone")
        made, least_ns = answer(flood)
        counted = engine.totals().by_pid[flood.pid]["cuStreamSynchronize"]
        assert (counted.counted, counted.open) == (made, 0)
        costs = engine.restraint.view().costs
        assert costs.timed is not None and least_ns < 0.85 * costs.timed
    finally:
        engine.close()


def test_a_governor_that_is_off_tells_and_moves_nobody(objects: Path, flood: subprocess.Popen[str]) -> None:
    config = GovernorConfig(enabled=False, window_seconds=0.3)
    engine = ProbeEngine(ProbesConfig(xid=False), SystemClock(), governor=config)
    engine.start()
    try:
        wait_until(lambda: is_probed(engine, flood.pid), "the flood's library is attached")
        tell(flood, "cuLaunchKernel", 1)
        deadline = time.monotonic() + 0.9
        while time.monotonic() < deadline:
            engine.restraint.govern(engine.read_slow(), engine.pids())
            time.sleep(0.1)
        (state,) = (each for each in engine.restraint.view().processes if each.pid == flood.pid)
        assert state.level == "full" and state.cost_ratio is not None and state.cost_ratio > 0.5
        answer(flood)
    finally:
        engine.close()


def is_probed(engine: ProbeEngine, pid: int) -> bool:
    return "libcuda" in covered_kinds(engine, pid)
