# SPDX-License-Identifier: Apache-2.0
from hotstage.detect.statistics.cusum import Cusum


def feed(excesses, drift=1.0):
    found = Cusum(limit=3.9)
    for number, excess in enumerate(excesses, 1):
        found.add(Cusum.step(excess, drift))
        if found.is_over:
            return number
    return None


def test_ten_times_as_slow_needs_four_samples_and_three_times_seven():
    assert feed([3.32] * 20) == 4
    assert feed([1.585] * 20) == 7


def test_half_as_slow_again_never_adds_up():
    assert feed([0.585] * 1000) is None


def test_one_wild_sample_is_worth_no_more_than_a_clear_one():
    assert feed([12.0, 0.0, 0.0, 12.0, 0.0, 0.0] * 50) is None


def test_it_forgets_soon_after():
    found = Cusum(limit=3.9)
    for _ in range(1000):
        found.add(1.2)
    assert found.value == 3.9 + 1.5
    for _ in range(9):
        found.add(Cusum.step(0.0, 1.0))
    assert found.value < 0.1
