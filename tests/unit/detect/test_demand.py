# SPDX-License-Identifier: Apache-2.0
import pytest
from support.pulses import SECOND, pulse

from hotstage.detect.demand import Demand


def run(*phases):
    """(seconds, requests a second) → the slack at the end."""
    demand, now, owed = Demand(), 0, 0.0
    for seconds, rate in phases:
        for _ in range(seconds * 10):
            now += SECOND // 10
            owed += rate / 10
            demand.observe(pulse(now, requests_started=int(owed)))
            owed -= int(owed)
    return demand.slack


def test_steady_load_excuses_nothing():
    assert run((120, 8)) == pytest.approx(0.0, abs=0.02)


def test_two_and_a_half_times_the_load_excuses_a_third_more_time():
    assert 2 ** run((60, 8), (12, 20)) == pytest.approx(1.33, abs=0.1)


def test_what_is_excused_is_bounded():
    assert run((60, 4), (12, 400)) == 0.6


def test_a_handful_of_requests_says_nothing():
    assert run((60, 0.1), (5, 1)) == 0.0
