# SPDX-License-Identifier: Apache-2.0
"""A look-up that hangs costs its own target and nobody else."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hotstage.probes.discovery.lookups import Lookups, Outcome

DEADLINE_SECONDS = 2.0


@pytest.fixture
def lookups(clock: Any) -> Iterator[Lookups]:
    pool = Lookups(DEADLINE_SECONDS, clock.monotonic_ns)
    yield pool
    pool.close()


def wait_for(lookups: Lookups, count: int) -> list[Outcome]:
    """`count` outcomes, waiting at most 5 s in all for them."""
    outcomes: list[Outcome] = []
    while len(outcomes) < count:
        readable, _, _ = select.select([lookups.wake_fd], [], [], 5)
        assert readable, f"{len(outcomes)} of {count} look-ups answered within 5 s"
        outcomes.extend(lookups.finished())
    return outcomes


def test_a_result_comes_back_with_its_key_and_wakes_the_caller(lookups: Lookups) -> None:
    lookups.submit("answer", "place", lambda: 42)
    assert wait_for(lookups, 1) == [Outcome("answer", 42, None)]
    assert lookups.pending == 0


def test_an_error_belongs_to_its_own_look_up(lookups: Lookups) -> None:
    def fail() -> None:
        raise OSError("no such file")

    lookups.submit("bad", "a", fail)
    lookups.submit("good", "b", lambda: 1)
    outcomes = {outcome.key: outcome for outcome in wait_for(lookups, 2)}
    assert isinstance(outcomes["bad"].error, OSError)
    assert outcomes["good"].result == 1


def test_a_hanging_look_up_is_abandoned_and_others_go_on(lookups: Lookups, clock: Any) -> None:
    started, release, freed = threading.Event(), threading.Event(), threading.Event()

    def hang() -> str:
        started.set()
        release.wait(10)
        return "late"

    lookups.submit(
        "slow", "dead mount", hang, discard=lambda result: freed.set() if result == "late" else None
    )
    assert started.wait(5), "the look-up began within 5 s"
    clock.advance(DEADLINE_SECONDS + 0.1)
    (outcome,) = lookups.finished()
    assert outcome.key == "slow"
    assert isinstance(outcome.error, TimeoutError)
    assert (lookups.abandoned_total, lookups.stuck) == (1, 1)

    lookups.submit("same", "dead mount", lambda: "never run")
    lookups.submit("other", "fine", lambda: "ran")
    outcomes = {outcome.key: outcome for outcome in wait_for(lookups, 2)}
    assert isinstance(outcomes["same"].error, TimeoutError)
    assert outcomes["other"].result == "ran"

    release.set()
    assert freed.wait(5), "what the late look-up held was freed within 5 s"
    assert lookups.finished() == []
    assert lookups.stuck == 0
    lookups.submit("again", "dead mount", lambda: "ran")
    assert wait_for(lookups, 1)[0].result == "ran"


def test_results_after_the_close_are_freed(clock: Any) -> None:
    lookups = Lookups(DEADLINE_SECONDS, clock.monotonic_ns)
    started, release, freed = threading.Event(), threading.Event(), threading.Event()

    def work() -> int:
        started.set()
        release.wait(10)
        return 1

    lookups.submit("key", "place", work, discard=lambda _: freed.set())
    assert started.wait(5), "the look-up began within 5 s"
    lookups.close()
    release.set()
    assert freed.wait(5), "the result was freed within 5 s"


def test_a_result_that_was_never_fetched_is_freed_at_the_close(clock: Any) -> None:
    lookups = Lookups(DEADLINE_SECONDS, clock.monotonic_ns)
    freed: list[int] = []
    lookups.submit("key", "place", lambda: 7, discard=freed.append)
    readable, _, _ = select.select([lookups.wake_fd], [], [], 5)
    assert readable, "the look-up was answered within 5 s"
    lookups.close()
    assert freed == [7]


def test_one_place_takes_one_worker_however_many_ask_there(lookups: Lookups) -> None:
    started, release = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(10)

    lookups.submit("slow", "dead mount", hang)
    assert started.wait(5), "the look-up began within 5 s"
    for number in range(20):
        lookups.submit(number, "dead mount", lambda: None)
    lookups.submit("other", "fine", lambda: "ran")
    assert [outcome.key for outcome in wait_for(lookups, 1)] == ["other"]
    release.set()
    assert len(wait_for(lookups, 21)) == 21


def test_where_no_thread_can_be_started_look_ups_wait_for_one(clock: Any, monkeypatch: Any) -> None:
    started, room = threading.Thread.start, [1]

    def start(thread: threading.Thread) -> None:
        if not room[0]:
            raise RuntimeError("can't start new thread")
        room[0] -= 1
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    pool = Lookups(DEADLINE_SECONDS, clock.monotonic_ns)
    hanging = threading.Event()
    try:
        assert pool.refused_threads == 1
        pool.submit("stuck", "nfs", hanging.wait)
        pool.submit("fine", "disk", lambda: 42)
        while not pool._running:
            pass
        clock.advance(DEADLINE_SECONDS + 1)
        (late,) = pool.finished()
        assert isinstance(late.error, TimeoutError)
        assert pool.refused_threads >= 2
        room[0] = 4
        pool.submit("later", "tape", lambda: 43)
        done = pool.finished()  # a look at what is done starts what is missing
        done += wait_for(pool, 2 - len(done))
        assert {each.result for each in done} == {42, 43}
    finally:
        hanging.set()
        pool.close()
