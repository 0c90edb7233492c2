# SPDX-License-Identifier: Apache-2.0
"""Users whose look-ups take long wait behind those whose do not, and pay back with time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from hotstage.probes.discovery.lookups import Lookups
from hotstage.probes.discovery.turns import DEBT_NS, PAID_BACK, WAITING_LIMIT, Turns

FLOODS, OTHER = 1001, 1002


def test_a_debt_beyond_the_limit_holds_a_user_back_until_it_is_paid(clock: Any) -> None:
    turns = Turns(clock.monotonic_ns)
    turns.charge(FLOODS, DEBT_NS)
    assert not turns.is_held_back(FLOODS)
    turns.charge(FLOODS, 1_000_000_000)
    assert turns.is_held_back(FLOODS)
    assert not turns.is_held_back(OTHER)
    clock.advance(1 / PAID_BACK)
    assert not turns.is_held_back(FLOODS)
    clock.advance(DEBT_NS / 1e9 / PAID_BACK)
    assert turns.debt_ns(FLOODS) == 0


@pytest.mark.parametrize("user", [0, None])
def test_root_and_those_who_are_not_known_owe_nothing(clock: Any, user: int | None) -> None:
    turns = Turns(clock.monotonic_ns)
    turns.charge(user, 10 * DEBT_NS)
    assert (turns.debt_ns(user), turns.is_held_back(user)) == (0, False)
    assert all(turns.queued(user) for _ in range(WAITING_LIMIT + 1))


def test_a_flood_of_one_user_delays_another_by_the_look_up_that_runs(clock: Any) -> None:
    lookups = Lookups(2.0, clock.monotonic_ns)
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        began.set()
        go_on.wait(10)

    def work(name: str) -> None:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        order.append(name)
        if len(order) == 41:
            done.set()

    try:
        lookups.submit("first", "disk", first, user=FLOODS)
        assert began.wait(5), "the first look-up began within 5 s"
        for number in range(40):
            lookups.submit(number, "disk", lambda: work("flood"), user=FLOODS)
        lookups.submit("other", "disk", lambda: work("other"), user=OTHER)
        go_on.set()
        assert done.wait(5), f"{len(order)} of 41 look-ups ended within 5 s"
    finally:
        go_on.set()
        lookups.close()
    assert order.index("other") == 0


def test_who_owes_too_much_waits_and_is_told_as_held_back(clock: Any) -> None:
    lookups = Lookups(2.0, clock.monotonic_ns)
    ran: list[int] = []
    went = threading.Event()
    try:
        with lookups._lock:
            lookups._turns.charge(FLOODS, DEBT_NS + 1_000_000_000)
        lookups.submit("held", "a", lambda: ran.append(FLOODS), user=FLOODS)
        lookups.submit("free", "b", lambda: (ran.append(OTHER), went.set()), user=OTHER)
        assert went.wait(5), "the other user's look-up ran within 5 s"
        assert (ran, lookups.held_back) == ([OTHER], 1)
        clock.advance(1.1 / PAID_BACK)
        deadline = time.monotonic() + 5
        while FLOODS not in ran:
            assert time.monotonic() < deadline, "what was held back ran within 5 s of its time"
            time.sleep(0.01)
        assert lookups.held_back == 0
    finally:
        lookups.close()


def test_what_one_user_has_waiting_is_bounded_and_the_rest_is_refused(clock: Any) -> None:
    lookups = Lookups(2.0, clock.monotonic_ns)
    began, go_on = threading.Event(), threading.Event()

    def first() -> None:
        began.set()
        go_on.wait(10)

    try:
        lookups.submit("first", "disk", first, user=FLOODS)
        assert began.wait(5), "the first look-up began within 5 s"
        for number in range(WAITING_LIMIT + 2):
            lookups.submit(number, "disk", lambda: None, user=FLOODS)
        refused = lookups.finished()
        assert [outcome.key for outcome in refused] == [WAITING_LIMIT, WAITING_LIMIT + 1]
        assert all(isinstance(outcome.error, TimeoutError) for outcome in refused)
    finally:
        go_on.set()
        lookups.close()
