# SPDX-License-Identifier: Apache-2.0
from hotstage.detect.statistics.exceedance import Exceedances, needed


def feed(pattern, usual=0.0):
    found = Exceedances()
    for number, exceeds in enumerate(pattern, 1):
        found.add(exceeds)
        if found.is_over(usual):
            return number
    return None


def test_every_second_sample_slow_is_seen_within_nine_slow_ones():
    assert feed([True, False] * 20) <= 18


def test_a_clear_run_is_seen_in_the_shortest_look_back():
    assert feed([True] * 10) <= 6


def test_what_is_usual_is_not_too_much():
    assert feed(([True] + [False] * 9) * 100, usual=0.1) is None
    assert feed(([True] * 2 + [False] * 4) * 100, usual=0.3) is None


def test_more_is_needed_where_more_is_usual():
    assert all(low < high for low, high in zip(needed(2)[1:], needed(20)[1:], strict=True))


def test_a_look_back_in_which_chance_could_do_it_never_fires():
    assert needed(50)[0] == 7  # more than the six it holds
