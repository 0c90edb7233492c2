# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from support.pulses import MS, SECOND

from hotstage.detect.baseline import Usual
from hotstage.detect.latency_judge import Judge, Sample
from hotstage.detect.statistics.work_size import WorkSize

USUAL = Usual(WorkSize(-3.0, math.inf, math.inf, -2.5), {}, scatter=0.2, exceed_ratio=0.0, seconds=0.125)


class Bench:
    def __init__(self):
        self.judge, self.now = Judge(2.5), 1000 * SECOND
        self.judge.conclude(self.now, USUAL, has_open=False)

    def samples(self, *excesses, every_ns=250 * MS, slack=0.0):
        """Ended spans one after the other → how many it took to fire, None if it did not."""
        for number, excess in enumerate(excesses, 1):
            self.judge.take(Sample(self.now, excess, 2**excess / 8, 1, True, None), USUAL, slack)
            if self.wait(every_ns):
                return number
        return None

    def wait(self, ns):
        for _ in range(ns // (50 * MS)):
            self.now += 50 * MS
            self.judge.conclude(self.now, USUAL, has_open=False)
        return self.judge.is_firing


@pytest.fixture
def bench():
    return Bench()


def test_a_factor_of_ten_needs_few_samples_and_of_three_not_many_more(bench):
    assert bench.samples(*[math.log2(10)] * 20) <= 6
    assert Bench().samples(*[math.log2(3)] * 20) <= 9


def test_half_as_slow_again_is_let_pass(bench):
    assert bench.samples(*[math.log2(1.5)] * 500) is None


def test_load_excuses_some_slowness(bench):
    assert bench.samples(*[math.log2(2.3)] * 200, slack=0.5) is None


def test_things_that_end_together_after_a_pause_do_not_fire(bench):
    assert bench.samples(*[4.0] * 12, *[0.0] * 4, every_ns=0) is None
    assert not bench.wait(SECOND)


def test_slow_and_good_seconds_in_turn_are_found(bench):
    assert bench.samples(*([2.0, 2.0, 0.0, 0.0] * 10)) is not None


def test_a_request_pays_once_for_its_age_and_its_end(bench):
    judge = bench.judge
    paid = judge.take(Sample(bench.now, 1.5, 0.35, 1, False, None), USUAL, 0.0)
    paid = judge.take(Sample(bench.now, 3.0, 1.0, 1, False, paid), USUAL, 0.0)
    judge.take(Sample(bench.now, 5.0, 4.0, 1, True, paid), USUAL, 0.0)
    assert judge.affected == 1
    assert judge.slow_share(0) == (1, 1.0)
    assert judge._sum.value == pytest.approx(1.2)


def test_the_alarm_begins_with_its_first_slow_sample(bench):
    bench.samples(0.0, 0.1, 0.0)
    began = bench.now
    bench.samples(*[3.0] * 8)
    assert bench.judge.since_ns == began
    assert bench.judge.factor() == pytest.approx(8.0)


def test_it_ends_after_three_good_samples_and_two_seconds(bench):
    assert bench.samples(*[3.0] * 10)
    firing = []
    for _ in range(10):
        bench.samples(0.0)
        firing.append(bench.judge.is_firing)
    assert firing == [True] * 6 + [False] * 4


def test_it_ends_when_there_is_nothing_left_to_judge(bench):
    bench.samples(*[3.0] * 10)
    assert bench.wait(8 * SECOND)
    assert not bench.wait(3 * SECOND)


@pytest.mark.parametrize(("exceed_ratio", "fires"), [(0.0, True), (0.05, False)])
def test_more_is_asked_of_a_stage_that_is_slow_now_and_then(bench, exceed_ratio, fires):
    usual = Usual(USUAL.size, {}, scatter=0.2, exceed_ratio=exceed_ratio, seconds=0.125)
    for _ in range(4):
        bench.judge.take(Sample(bench.now, 2.0, 0.5, 1, True, None), usual, 0.0)
        bench.now += SECOND
        bench.judge.conclude(bench.now, usual, has_open=False)
    assert bench.judge.is_firing is fires


def test_what_no_single_sample_shows_does_not_fire_and_then_one_slow_sample_is_enough(bench):
    assert bench.samples(*[math.log2(2.2)] * 200) is None
    assert bench.samples(2.0) == 1
    assert (bench.judge.affected, bench.judge.factor(), bench.judge.typical_seconds()) == (1, 4.0, 0.5)
