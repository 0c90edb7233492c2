# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from hotstage.frame.rolling import Rolling, nearest_ranks, sums

DTYPE = np.dtype([("at_ns", np.uint64), ("value", np.float64)])


def rows(*times):
    return np.array([(at, at) for at in times], DTYPE)


def test_rows_are_kept_until_they_are_too_old():
    ring = Rolling(DTYPE, 8)
    ring.append(rows(1, 2, 3))
    assert sorted(ring.since(1)["value"]) == [2, 3]
    assert len(ring.since(-5)) == 3


@pytest.mark.parametrize("portion", [1, 3, 5, 8, 11])
def test_beyond_the_capacity_the_oldest_go(portion):
    ring, times = Rolling(DTYPE, 8), range(1, 38)
    for first in range(0, 37, portion):
        ring.append(rows(*times[first : first + portion]))
    assert sorted(ring.since(0)["value"]) == list(range(30, 38))


def test_rows_that_come_a_moment_late_are_told_by_their_own_time():
    second = 1_000_000_000
    ring = Rolling(DTYPE, 8)
    ring.append(rows(*(at * second for at in range(1, 6))))
    ring.append(rows(5 * second + 7, 5 * second - 7, 9 * second))
    assert sorted(ring.since(5 * second)["at_ns"]) == [5 * second + 7, 9 * second]
    assert sorted(ring.since(5 * second - 8)["at_ns"])[0] == 5 * second - 7
    ring.append(rows(10 * second, 11 * second))
    assert len(ring.since(4 * second)) == 6


def test_the_nearest_rank_is_a_value_that_occurred():
    values = np.arange(1.0, 21.0)
    (count, ranked) = nearest_ranks(np.zeros(20, np.int64), values[::-1].copy(), (0.5, 0.95, 0.99))[0]
    assert (count, ranked.tolist()) == (20, [10.0, 19.0, 20.0])


def test_groups_are_apart_and_against_a_count_by_hand():
    source = np.random.default_rng(3)
    codes, values = source.integers(0, 5, 997), source.random(997)
    for code, (count, ranked) in nearest_ranks(codes, values, (0.95,)).items():
        own = sorted(values[codes == code])
        assert count == len(own)
        assert ranked[0] == own[math.ceil(0.95 * len(own)) - 1]


def test_sums_count_or_weigh():
    codes = np.array([4, 4, 9])
    assert sums(codes) == {4: 2.0, 9: 1.0}
    assert sums(codes, np.array([0.5, 1.5, 3.0])) == {4: 2.0, 9: 3.0}
    assert sums(codes[:0]) == {}
