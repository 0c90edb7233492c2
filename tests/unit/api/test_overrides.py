# SPDX-License-Identifier: Apache-2.0
"""Orders wait for the tick, and are withdrawn when no tick comes."""

from __future__ import annotations

import threading

import pytest

from hotstage.api import overrides as module
from hotstage.api.message import ApiError
from hotstage.api.overrides import OverrideDesk, OverrideOrder

TRIP = OverrideOrder(action="force_open", ttl_seconds=60)


@pytest.fixture
def ticking():
    """`ticking(desk, answer)`: a thread that plays the tick until it has answered one order."""
    threads = []

    def start(desk, answer):
        def run():
            taken = []
            while not taken:
                taken = desk.take()
                stop.wait(0.002)
            answer(taken[0])

        stop = threading.Event()
        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_the_tick_gets_the_order_and_the_caller_the_record(ticking, make):
    desk = OverrideDesk()
    seen = []
    ticking(desk, lambda pending: (seen.append(pending), pending.done(make.breaker())))
    assert desk.order("host", TRIP, "uid 0") == make.breaker()
    assert (seen[0].name, seen[0].actor, seen[0].order) == ("host", "uid 0", TRIP)


def test_a_refusal_reaches_the_caller_as_404(ticking):
    desk = OverrideDesk()
    ticking(desk, lambda pending: pending.refuse("no breaker nope", "list them"))
    with pytest.raises(ApiError) as caught:
        desk.order("nope", TRIP, "uid 0")
    assert (caught.value.status, caught.value.message) == (404, "no breaker nope")


def test_an_order_that_no_tick_takes_is_withdrawn(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.01)
    desk = OverrideDesk()
    with pytest.raises(ApiError) as caught:
        desk.order("host", TRIP, "uid 0")
    assert (caught.value.status, caught.value.code) == (503, "not_ticking")
    assert desk.take() == []


def test_an_override_without_an_end_is_refused_but_a_reset_needs_none():
    with pytest.raises(ApiError, match="ttl_seconds"):
        OverrideDesk().order("host", OverrideOrder(action="disable"), "uid 0")


def test_too_many_waiting_orders_are_refused(monkeypatch):
    monkeypatch.setattr(module, "_MAX_WAITING", 0)
    with pytest.raises(ApiError) as caught:
        OverrideDesk().order("host", TRIP, "uid 0")
    assert caught.value.code == "busy"
