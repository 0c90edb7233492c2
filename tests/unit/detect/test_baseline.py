# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from support.pulses import SECOND

from hotstage.detect.baseline import CAPACITY, Baseline


def learn(baseline, count, log_seconds=-3.0, *, now=0, every=SECOND, instance=1, suspicious=False):
    for _ in range(count):
        now += every
        baseline.learn(now, log_seconds, 0.0, instance)
        baseline.advance(now, is_suspicious=suspicious)
    return now


def usual_log(baseline):
    return float(baseline.usual.size.expected(np.zeros(1))[0])


@pytest.fixture
def baseline():
    return Baseline(min_samples=20, suspicious=1.19)


def test_it_knows_nothing_before_twenty_samples_or_eight_in_eight_seconds(baseline):
    learn(baseline, 19, every=SECOND // 10)
    assert baseline.usual is None
    learn(baseline, 1, now=2 * SECOND)
    assert baseline.usual is not None
    slow = Baseline(20, 1.19)
    learn(slow, 7, every=2 * SECOND)
    assert slow.usual is None
    learn(slow, 1, now=15 * SECOND)
    assert slow.usual is not None


def test_samples_wait_and_are_thrown_away_by_an_alarm(baseline):
    now = learn(baseline, 20)
    now = learn(baseline, 4, 2.0, now=now)
    baseline.freeze()
    learn(baseline, 200, now=now)
    assert usual_log(baseline) == -3.0
    assert np.count_nonzero(baseline._logs[: baseline._count] == 2.0) == 0


def test_nothing_is_learned_while_it_looks_wrong(baseline):
    now = learn(baseline, 20)
    learn(baseline, 300, 2.0, now=now, suspicious=True)
    assert usual_log(baseline) == -3.0


def test_once_full_it_turns_over_in_minutes_not_seconds(baseline):
    now = learn(baseline, CAPACITY + 20, every=SECOND // 10)
    now = learn(baseline, 600, 1.0, now=now, every=SECOND // 10)
    assert usual_log(baseline) == -3.0
    learn(baseline, 9000, 1.0, now=now, every=SECOND // 10)
    assert usual_log(baseline) == 1.0


def test_a_slower_instance_is_usual_for_itself(baseline):
    now = 0
    for _ in range(20):
        now = learn(baseline, 1, -3.0, now=now, instance=1)
        now = learn(baseline, 1, -2.0, now=now, instance=2)
    learn(baseline, 12, -3.0, now=now)
    excess = [baseline.excess_of(-2.0, 0.0, instance) for instance in (1, 2)]
    assert excess == pytest.approx([1.0, 0.0], abs=0.05)


def test_the_share_of_slow_samples_among_usual_ones_is_known(baseline):
    now = 0
    for number in range(200):
        now = learn(baseline, 1, 0.0 if number % 20 == 0 else -3.0, now=now)
    assert baseline.usual.exceed_ratio == pytest.approx(0.05, abs=0.01)
