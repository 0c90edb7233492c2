# SPDX-License-Identifier: Apache-2.0
"""The governor's state machine as dialogues, and against series that nobody thought of."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hotstage.config.governor import GovernorConfig
from hotstage.probes.maps.levels import Level
from hotstage.probes.restraint.steps import LONGEST_WAIT, Judged, Steps

S = 1_000_000_000
CONFIG = GovernorConfig()


def judged(
    at: float, ratio: float | None, counts: float | None = None, *, window: float = 10, cores: float = 0.1
):
    """A process whose probes cost `ratio` at full, and `counts` where calls are counted alone."""
    if ratio is None:
        return Judged(round(at * S), round(window * S), None, None)
    counts = ratio * 0.6 if counts is None else counts
    ratios = {Level.full: ratio, Level.no_stacks: ratio, Level.tails_only: ratio, Level.counts_only: counts}
    return Judged(round(at * S), round(window * S), ratios, cores)


def test_what_is_within_the_limit_is_left_alone():
    steps = Steps(CONFIG)
    assert not any(steps.advance(judged(at, 0.02)) for at in range(1000))
    assert steps.level is Level.full


def test_above_the_limit_for_a_window_it_goes_to_the_first_level_that_helps():
    steps = Steps(CONFIG)
    assert not steps.advance(judged(5, 0.03, 0.018, window=5))
    assert steps.advance(judged(10, 0.03, 0.018))
    assert steps.level is Level.counts_only
    assert steps.reason == "probes cost 3.0% of its CPU time, 2.0% are allowed"


def test_a_level_between_is_enough_where_stacks_are_what_costs():
    steps = Steps(CONFIG)
    ratios = {Level.full: 0.04, Level.no_stacks: 0.015, Level.tails_only: 0.015, Level.counts_only: 0.01}
    assert steps.advance(Judged(10 * S, 10 * S, ratios, 0.1))
    assert steps.level is Level.no_stacks


def test_counts_alone_stay_between_limit_and_detach_ratio():
    steps = Steps(CONFIG)
    steps.advance(judged(10, 0.045, 0.04))
    assert steps.level is Level.counts_only
    assert not any(steps.advance(judged(at, 0.045, 0.04)) for at in range(20, 500))


def test_far_above_a_third_of_a_window_is_enough_and_what_nothing_helps_is_let_go():
    steps = Steps(CONFIG)
    assert not steps.advance(judged(3, 0.9, 0.8, window=3))
    assert steps.advance(judged(4, 0.9, 0.8, window=4))
    assert steps.level is Level.detached


def test_it_comes_back_after_a_quiet_time_and_not_before():
    steps = Steps(CONFIG)
    steps.advance(judged(10, 0.03, 0.018))
    assert not any(steps.advance(judged(at, 0.01, 0.006)) for at in range(20, 80))
    assert steps.advance(judged(80, 0.01, 0.006))
    assert steps.level is Level.full


def test_what_would_be_near_the_limit_is_no_quiet():
    steps = Steps(CONFIG)
    steps.advance(judged(10, 0.03, 0.018))
    assert not any(steps.advance(judged(at, 0.016, 0.01)) for at in range(20, 1000))


def test_an_idle_process_is_quiet_though_its_share_is_unknown():
    steps = Steps(CONFIG)
    steps.advance(judged(10, 0.03, 0.018))
    idle = [Judged(at * S, 10 * S, None, 0.0001) for at in range(20, 81)]
    assert [steps.advance(each) for each in idle][-1]
    assert steps.level is Level.full


def test_one_that_was_let_go_is_tried_again_each_time_after_twice_the_wait():
    steps, at, waits = Steps(CONFIG), 0, []
    for _ in range(9):
        at += 10
        while not steps.advance(judged(at, 0.9, 0.8)):
            at += 1
        assert steps.level is Level.detached
        began = at
        while not steps.advance(judged(at, None)):
            at += 1
        assert steps.level is Level.counts_only
        waits.append(at - began)
    assert waits == [60 * min(2**n, LONGEST_WAIT) for n in range(9)]


def test_little_is_let_alone_whatever_its_share():
    steps = Steps(CONFIG)
    assert not any(steps.advance(judged(at, 0.5, 0.4, cores=0.001)) for at in range(100))


def test_what_is_unknown_moves_nobody():
    steps = Steps(CONFIG)
    steps.advance(judged(10, 0.03, 0.018))
    assert not any(steps.advance(judged(at, None)) for at in range(20, 1000))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_series_it_never_flaps_and_never_stays_far_above(seed: int):
    chance = random.Random(seed)
    steps, moved, far = Steps(CONFIG), [], 0
    ratio = 0.01
    for at in range(10, 4000):
        if chance.random() < 0.02:
            ratio = chance.choice([0.001, 0.01, 0.019, 0.021, 0.03, 0.06, 0.5]) * chance.uniform(0.9, 1.1)
        share = chance.uniform(0.4, 0.95)
        since = at - (moved[-1][0] if moved else 0)
        known = None if steps.level is Level.detached or chance.random() < 0.05 else ratio
        before = steps.level
        if steps.advance(judged(at, known, ratio * share, window=min(10, since))):
            moved.append((at, before, steps.level))
        real = {Level.counts_only: ratio * share, Level.detached: 0.0}.get(steps.level, ratio)
        far = far + 1 if real > CONFIG.detach_ratio else 0
        assert far <= 30, f"far above the limit for {far} s"
    for (at, _, _), (later, before, after) in pairwise(moved):
        assert later - at >= (CONFIG.quiet_seconds if after < before else 3)
