# SPDX-License-Identifier: Apache-2.0
"""Transitions and windows as versioned events."""

from __future__ import annotations

import json
import re

import pytest

from hotstage.breaker.record import BreakerState
from hotstage.detect.finding import Evidence
from hotstage.probes.maps.levels import Level
from hotstage.probes.restraint.governor import Step
from hotstage.sinks.events import TYPES, EventMaker
from hotstage.store.switches import SwitchMove

OFFSET = 1_700_000_000_000_000_000
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def maker():
    return EventMaker("host-1")


def test_a_transition_tells_who_moved_from_where_to_where_and_why(maker, make):
    event = maker.transition(make.transition(), OFFSET, TRACE)
    assert event.type == "io.hotstage.breaker.opened.v1"
    assert event.subject == "stage:vision_encode:image"
    assert event.created_ns == OFFSET + 7_000
    body = json.loads(event.body)
    assert body["source"] == "urn:hotstage:host-1"
    assert body["time"] == "2023-11-14T22:13:20.000Z"
    assert body["traceparent"] == TRACE
    assert body["data"] | {"at": None} == {
        "breaker": "stage:vision_encode:image",
        "scope": {"stage": "vision_encode", "modality": "image"},
        "from": "closed",
        "to": "open",
        "enforced": False,
        "reason": "window w-1",
        "window_id": "w-1",
        "actor": None,
        "at": None,
        "at_ns": OFFSET + 7_000,
        "snapshot": None,
        "recovery_plan": None,
    }


def test_an_opening_leads_to_what_was_in_flight_and_to_the_plan_for_it(maker, make):
    moved = json.loads(maker.transition(make.transition(), OFFSET, snapshot_id="s-1").body)["data"]
    assert (moved["snapshot"], moved["recovery_plan"]) == ("/v1/snapshots/s-1", "/v1/snapshots/s-1/plan")
    opened = json.loads(maker.window_opened(make.window(), OFFSET).body)["data"]
    assert opened["snapshot"] == "/v1/windows/w-1/snapshot"
    assert opened["recovery_plan"] == "/v1/windows/w-1/snapshot/plan"


@pytest.mark.parametrize("state", list(BreakerState))
def test_every_state_has_its_type(maker, make, state):
    event = maker.transition(make.transition(to_state=state), OFFSET)
    assert event.type in TYPES
    assert state.value in event.type or state is BreakerState.open
    assert "traceparent" not in json.loads(event.body)


def test_the_same_happening_has_the_same_id_and_another_has_another(maker, make):
    first = maker.transition(make.transition(), OFFSET)
    assert maker.transition(make.transition(), OFFSET).id == first.id
    assert maker.transition(make.transition(at_ns=7_001), OFFSET).id != first.id
    assert EventMaker("host-2").transition(make.transition(), OFFSET).id != first.id
    assert re.fullmatch(r"evt_[0-9a-f]{32}", first.id)


def test_a_window_opens_and_closes_as_one_subject(maker, make):
    opened = maker.window_opened(make.window(), OFFSET)
    closed = maker.window_closed(make.window(closed_ns=9_000), OFFSET)
    assert (opened.subject, opened.type) == ("window:w-1", "io.hotstage.window.opened.v1")
    assert (closed.subject, closed.type) == ("window:w-1", "io.hotstage.window.closed.v1")
    assert opened.id != closed.id
    data = json.loads(closed.body)["data"]
    assert (data["closed_at_ns"], data["interrupted"], data["severity"]) == (OFFSET + 9_000, False, "warning")
    assert json.loads(opened.body)["data"]["evidence"] == [
        {
            "column": "oldest_age_seconds",
            "value": 4.2,
            "limit": 1.0,
            "unit": "s",
            "since_ns": OFFSET + 4_000,
            "note": "20 requests",
        }
    ]


def test_an_interrupted_window_says_so_and_ends_when_it_was_last_seen(maker, make):
    event = maker.window_closed(make.window(), OFFSET, is_interrupted=True)
    assert event.created_ns == OFFSET + 6_000
    assert json.loads(event.body)["data"]["interrupted"] is True


def test_a_body_stays_below_20_kb_whatever_a_window_holds(maker, make):
    evidence = tuple(Evidence(f"column_{n}", 1.0, 2.0, "s", 1, "x" * 200) for n in range(500))
    assert len(maker.window_opened(make.window(evidence=evidence), OFFSET).body) < 20_000


def test_a_test_event_is_new_each_time(maker):
    first, second = maker.test(OFFSET, "pager"), maker.test(OFFSET, "pager")
    assert first.id != second.id
    assert (first.type, first.subject) == ("io.hotstage.test.v1", "test:pager")


def test_the_kill_switch_is_told_with_who_and_why(maker):
    off = maker.switched(SwitchMove(OFFSET, "off", "uid 0 (root)", "an update"))
    on = maker.switched(SwitchMove(OFFSET + 1, "on", "uid 7", None))
    assert (off.type, on.type) == ("io.hotstage.probes.off.v1", "io.hotstage.probes.on.v1")
    assert off.subject == on.subject == "probes", "whoever is told of one is told of the other, in order"
    assert json.loads(off.body)["data"] == {
        "state": "off",
        "actor": "uid 0 (root)",
        "reason": "an update",
        "at": "2023-11-14T22:13:20.000Z",
        "at_ns": OFFSET,
    }


def test_a_step_of_the_governor_names_its_process_and_both_levels(maker):
    step = Step(7, Level.full, Level.tails_only, "probes would cost 3.1% of its CPU time")
    event = maker.stepped(step, OFFSET)
    data = json.loads(event.body)["data"]
    assert (event.type, event.subject) == ("io.hotstage.probes.level.v1", "probes:7")
    assert (data["pid"], data["from"], data["to"]) == (7, "full", "tails_only")
    assert maker.stepped(step, OFFSET + 1).id != event.id
