# SPDX-License-Identifier: Apache-2.0
"""Cost is calls by class times calibrated cost; a window begins anew with a process's level and its life."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hotstage.config.governor import GovernorConfig
from hotstage.probes.maps.layout import CALL_KEY_DTYPE, CALL_STAT_DTYPE
from hotstage.probes.maps.levels import Level
from hotstage.probes.restraint.costs import Costs
from hotstage.probes.restraint.governor import CallClasses, Governor, Hits, cost_ns, cpu_of

S = 1_000_000_000
COSTS = Costs(
    "by hand", launch=600, timed=1100, timed_tails=1000, timed_counts=700, mark=650, nvtx=500, step=9000,
    told=2500, told_bare=400,
)  # fmt: skip


def test_each_class_costs_its_own_and_levels_take_away_what_they_take():
    hits = Hits(S, launches=10, timed=5, kept=2, stepped=1, marks=4, nvtx=3)
    rest = 10 * 600 + 9000 + 4 * 650 + 3 * 500
    assert cost_ns(hits, COSTS, Level.full) == rest + 7 * 1100
    assert cost_ns(hits, COSTS, Level.no_stacks) == rest + 7 * 1100
    assert cost_ns(hits, COSTS, Level.tails_only) == rest + 7 * 1000
    assert cost_ns(hits, COSTS, Level.counts_only) == rest + 5 * 700 + 2 * 1000
    assert cost_ns(Hits(S, told=3), COSTS, Level.full) == 3 * 2500
    assert cost_ns(Hits(S, told=3), COSTS, Level.no_stacks) == 3 * 400


def test_page_faults_cost_until_the_first_step_of_any_process_takes_them_from_all():
    costs = replace(COSTS, page_fault=200, other_page_fault=50)
    hits = Hits(S, page_faults=1000)
    assert cost_ns(hits, costs, Level.full) == 200_000
    assert cost_ns(hits, costs, Level.no_stacks) == 0
    assert cost_ns(hits, COSTS, Level.full) is None
    governor = Governor(GovernorConfig(window_seconds=2, ignored_cores=0.001), costs)
    for second in range(1, 6):
        busy = Hits(second * S, page_faults=second * 500_000, cpu_ns=second * S)
        governor.advance(second * S, {7: (1, busy), 8: (1, Hits(second * S, cpu_ns=second * S))})
        if second == 1:
            assert governor.spared() is None
    assert "process 7 is at level no_stacks" in governor.spared()
    governor.advance(6 * S, {8: (1, Hits(6 * S, cpu_ns=6 * S))})
    assert governor.spared() is None


def test_what_was_not_calibrated_is_unknown_and_never_a_guess():
    assert cost_ns(Hits(S, launches=1), Costs("not calibrated"), Level.full) is None
    without = Costs("by hand", launch=600, timed=1100, timed_tails=1000, timed_counts=700)
    assert cost_ns(Hits(S, launches=1), without, Level.full) == 600
    assert cost_ns(Hits(S, launches=1, nvtx=1), without, Level.full) is None


def test_calls_are_told_apart_by_what_is_probed_of_them():
    keys, stats = np.zeros(4, CALL_KEY_DTYPE), np.zeros(4, CALL_STAT_DTYPE)
    keys["tgid"] = [7, 7, 7, 8]
    keys["call"] = [1, 64, 496, 1]  # cuLaunchKernel, cuStreamSynchronize, unknown, cuLaunchKernel
    stats["count"] = [10, 20, 3, 5]
    hits = CallClasses().hits(keys, stats, lambda pid: {64} if pid == 7 else set(), 9)
    assert (hits[7].launches, hits[7].timed + hits[7].kept, hits[7].stepped) == (10, 23, 20)
    assert (hits[8].launches, hits[8].stepped, hits[8].at_ns) == (5, 0, 9)


def fed(
    governor: Governor, pid: int, identity: int, seconds: int, *, rate: int, cores: float, start: int = 0
):
    """Steps of a process that launches `rate` a second on so many cores."""
    steps = []
    for at in range(start, start + seconds):
        now = Hits(at * S, launches=rate * at, cpu_ns=round(cores * S) * at)
        steps += governor.advance(at * S, {pid: (identity, now)})
    return steps


def test_a_flood_of_launches_on_little_cpu_is_let_go():
    governor = Governor(GovernorConfig(), COSTS)
    (step,) = fed(governor, 7, 1, 30, rate=1_000_000, cores=0.7)
    assert (step.pid, step.before, step.level) == (7, Level.full, Level.detached)
    (shown,) = governor.view().processes
    assert (shown.level, shown.cost_ratio) == ("detached", None)


def test_the_same_on_much_cpu_is_shown_and_left():
    governor = Governor(GovernorConfig(), COSTS)
    assert fed(governor, 7, 1, 30, rate=10_000, cores=1.0) == []
    (shown,) = governor.view().processes
    assert shown.cost_ratio is not None and abs(shown.cost_ratio - 0.006) < 1e-9
    assert shown.cost_cores is not None and abs(shown.cost_cores - 0.006) < 1e-9


def test_another_life_of_the_pid_begins_at_full_and_its_counters_at_nothing():
    governor = Governor(GovernorConfig(), COSTS)
    fed(governor, 7, 1, 30, rate=1_000_000, cores=0.7)
    assert fed(governor, 7, 2, 20, rate=10, cores=1.0, start=30) == []
    assert governor.view().processes[0].level == "full"


def test_one_that_has_gone_is_forgotten():
    governor = Governor(GovernorConfig(), COSTS)
    fed(governor, 7, 1, 5, rate=10, cores=1.0)
    governor.advance(9 * S, {})
    assert governor.view().processes == ()


def test_a_governor_that_is_off_shows_and_moves_nobody():
    governor = Governor(GovernorConfig(enabled=False), COSTS)
    assert fed(governor, 7, 1, 30, rate=1_000_000, cores=0.7) == []
    assert (governor.view().processes[0].cost_ratio or 0) > 0.8


def test_cpu_time_is_read_behind_any_name(tmp_path):
    (tmp_path / "7").mkdir()
    fields = ["S", *["0"] * 10, "30", "12", *["0"] * 6, "4711", "0"]
    (tmp_path / "7/stat").write_text(f"7 (a) b) {' '.join(fields)}")
    start, cpu_ns = cpu_of(tmp_path, 7) or (0, 0)
    assert start == 4711 and cpu_ns > 0
    assert cpu_of(tmp_path, 8) is None
