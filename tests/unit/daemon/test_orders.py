# SPDX-License-Identifier: Apache-2.0
"""An override waits for the next tick, moves the breaker, and its sender gets the breaker as it is then."""

from __future__ import annotations

import threading

import pytest

from hotstage.api.message import ApiError
from hotstage.api.overrides import OverrideDesk, OverrideOrder
from hotstage.breaker.record import BreakerState
from hotstage.breaker.registry import BreakerSet
from hotstage.config.settings import BreakersConfig
from hotstage.daemon.orders import carry_out

NAME = "stage:vision_encode:image"
SECOND = 1_000_000_000


@pytest.fixture
def breakers(make) -> BreakerSet:
    held = BreakerSet(BreakersConfig())
    held.restore([make.breaker(state=BreakerState.closed)])
    return held


def ordered(desk: OverrideDesk, breakers: BreakerSet, order: OverrideOrder, name: str = NAME, repaired=None):
    """(what the tick made, what the sender got); scopes that were called repaired go into the list."""
    answers = []
    repaired = [] if repaired is None else repaired

    def send() -> None:
        try:
            answers.append(desk.order(name, order, "uid 0"))
        except ApiError as error:
            answers.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    made = []
    while sender.is_alive():
        made += carry_out(desk, breakers, 100 * SECOND, repaired.append)
        sender.join(0.01)
    return made, answers[0]


def test_a_trip_forces_the_breaker_open_and_tells_its_actor(breakers):
    (move,), record = ordered(
        OverrideDesk(), breakers, OverrideOrder(action="force_open", ttl_seconds=60, reason="drill")
    )
    assert (move.from_state, move.to_state, move.actor) == ("closed", "forced_open", "uid 0")
    assert record.shown is BreakerState.forced_open
    assert record.override.until_ns == 160 * SECOND


def test_a_reset_takes_it_back(breakers):
    desk = OverrideDesk()
    ordered(desk, breakers, OverrideOrder(action="disable", ttl_seconds=60))
    (move,), record = ordered(desk, breakers, OverrideOrder(action="reset"))
    assert move.to_state == "closed"
    assert record.override is None


def test_an_unknown_breaker_is_refused_with_a_remedy(breakers):
    made, error = ordered(OverrideDesk(), breakers, OverrideOrder(action="reset"), name="stage:nothing")
    assert made == []
    assert isinstance(error, ApiError)
    assert "stage:nothing" in error.message


def test_a_trip_of_no_scope_is_refused_with_the_forms_that_there_are(breakers):
    order = OverrideOrder(action="force_open", ttl_seconds=60)
    made, error = ordered(OverrideDesk(), breakers, order, name="vision_encode")
    assert made == []
    assert isinstance(error, ApiError)
    assert "modality:MODALITY" in error.message


def test_a_trip_before_the_first_window_is_answered_with_its_new_breaker(breakers):
    order = OverrideOrder(action="force_open", ttl_seconds=60)
    (move,), record = ordered(OverrideDesk(), breakers, order, name="endpoint:/v1/chat")
    assert move.to_state == record.shown == "forced_open"
    assert record.scope.endpoint == "/v1/chat"


def test_a_reset_says_that_what_the_breaker_is_of_is_well_again_and_a_trip_does_not(breakers):
    desk, repaired = OverrideDesk(), []
    ordered(desk, breakers, OverrideOrder(action="force_open", ttl_seconds=60), repaired=repaired)
    assert repaired == []
    made, _ = ordered(desk, breakers, OverrideOrder(action="reset"), repaired=repaired)
    made, _ = ordered(desk, breakers, OverrideOrder(action="reset"), repaired=repaired)
    assert made == []
    assert [scope.stage for scope in repaired] == ["vision_encode", "vision_encode"]
