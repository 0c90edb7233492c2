# SPDX-License-Identifier: Apache-2.0
"""Breakers survive a restart, and a reboot moves their times onto the new clock."""

from __future__ import annotations

from hotstage.breaker.record import BreakerState, Override, OverrideAction
from hotstage.store import breakers
from hotstage.store.breakers import Moment

SECOND = 1_000_000_000


def saved(store, record, moment):
    with store.database.transaction() as cursor:
        breakers.save(cursor, record, moment)


def test_within_one_boot_a_record_comes_back_unchanged(store, make):
    record = make.breaker()
    saved(store, record, Moment("boot-a", 8_000, 108_000))
    assert breakers.load_all(store.database, Moment("boot-a", 99_000, 500_000)) == [record]


def test_the_later_record_of_a_name_replaces_the_earlier(store, make):
    saved(store, make.breaker(), Moment("a", 1, 1))
    closed = make.breaker(state=BreakerState.closed, reason="recovered")
    saved(store, closed, Moment("a", 2, 2))
    assert breakers.load_all(store.database, Moment("a", 3, 3)) == [closed]


def test_after_a_reboot_times_are_as_long_ago_as_the_wall_clock_says(store, make):
    override = Override(OverrideAction.disable, "uid 0", "test", 90 * SECOND, 400 * SECOND)
    record = make.breaker(since_ns=90 * SECOND, clear_since_ns=None, override=override)
    saved(store, record, Moment("boot-a", 100 * SECOND, 5_000 * SECOND))
    # 60 s later by the wall clock; the new boot is 20 s old.
    (moved,) = breakers.load_all(store.database, Moment("boot-b", 20 * SECOND, 5_060 * SECOND))
    # It began 10 s before it was saved, so 70 s ago; the override had 300 s left, so 240 s.
    assert moved.since_ns == (20 - 70) * SECOND
    assert moved.override.until_ns == (20 + 240) * SECOND
    assert moved.clear_since_ns is None


def test_a_wall_clock_that_was_set_back_does_not_put_times_into_the_future(store, make):
    saved(store, make.breaker(since_ns=100), Moment("boot-a", 100, 5_000))
    (moved,) = breakers.load_all(store.database, Moment("boot-b", 40, 1_000))
    assert moved.since_ns == 40


def test_transitions_keep_their_order_and_their_wall_time(store, make):
    with store.database.transaction() as cursor:
        breakers.append(cursor, make.transition(at_ns=10), 1_000)
        breakers.append(cursor, make.transition("gpu:GPU-1", at_ns=20), 1_000)
        breakers.append(cursor, make.transition(at_ns=30, to_state=BreakerState.half_open), 1_000)
    found = breakers.newest_transitions(store.database, limit=10)
    assert [(s.transition.name, s.wall_ns) for s in found] == [
        ("stage:vision_encode:image", 1_030),
        ("gpu:GPU-1", 1_020),
        ("stage:vision_encode:image", 1_010),
    ]
    one = breakers.newest_transitions(store.database, limit=10, breaker="gpu:GPU-1")
    assert [s.transition.at_ns for s in one] == [20]
