# SPDX-License-Identifier: Apache-2.0
"""What an event says, in words."""

from __future__ import annotations

import msgspec
import pytest

from hotstage.breaker.record import BreakerState
from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.alert import labels_of
from hotstage.notify.formats.envelope import open_body
from hotstage.notify.formats.story import tell
from hotstage.probes.maps.levels import Level
from hotstage.probes.restraint.governor import Step
from hotstage.sinks.events import EventMaker
from hotstage.store.switches import SwitchMove


def story(event):
    held = HeldEvent(1, event.id, event.type, event.subject, event.created_ns, event.body)
    return tell(held, open_body(held.body), "gpu-7")


def test_a_window_fires_from_opening_to_close(make):
    maker = EventMaker("h")
    opened, closed = (
        story(maker.window_opened(make.window(), 0)),
        story(maker.window_closed(make.window(), 0)),
    )
    assert (opened.is_firing, opened.status, opened.ended_at) == (True, "open", None)
    assert (closed.is_firing, closed.status) == (False, "closed")
    assert opened.started_at == closed.started_at
    assert opened.parts == {"stage": "vision_encode", "modality": "image"}


def test_a_fact_without_a_limit_has_no_worst_moment(make):
    said = story(EventMaker("h").window_closed(make.window(score=1.0, closed_ns=9_000), 0))
    assert said.text.endswith("(figures of its last sign)")


def test_a_window_that_an_xid_explains_names_its_window(make):
    said = story(EventMaker("h").window_opened(make.window(caused_by="w-0"), 0))
    assert said.text.endswith("(figures as it opened). Explained by the XID of window w-0")
    assert "Explained" not in story(EventMaker("h").window_opened(make.window(), 0)).text


def test_figures_are_dated_only_where_they_are_a_windows(make):
    closing = make.transition(to_state=BreakerState.closed, reason="5 requests ended well")
    assert story(EventMaker("h").transition(closing, 0)).text.endswith("5 requests ended well")
    by_hand = make.transition(window_id=None, reason="a drill")
    assert story(EventMaker("h").transition(by_hand, 0)).text.endswith("a drill")


def test_an_interrupted_window_does_not_claim_that_it_is_over(make):
    said = story(EventMaker("h").window_closed(make.window(), 0, is_interrupted=True))
    assert said.title.startswith("No longer watched")
    assert "the agent ended before it was over" in said.text


@pytest.mark.parametrize(
    ("state", "is_firing", "title"),
    [
        (BreakerState.open, True, "Breaker b is open"),
        (BreakerState.half_open, True, "Breaker b is half-open"),
        (BreakerState.forced_open, True, "Breaker b is forced open"),
        (BreakerState.closed, False, "Breaker b is closed"),
        (BreakerState.disabled, False, "Breaker b is disabled"),
        (BreakerState.metrics_only, False, "Breaker b is set to metrics only"),
    ],
)
def test_a_breaker_fires_while_it_may_shed(make, state, is_firing, title):
    said = story(EventMaker("h").transition(make.transition("b", to_state=state), 0))
    assert (said.is_firing, said.title) == (is_firing, title)
    assert (said.started_at is None, said.ended_at is None) == (not is_firing, is_firing)


def test_a_type_that_a_newer_agent_made_is_still_told():
    event = HeldEvent(1, "e", "io.hotstage.slo.burned.v3", "slo:a", 5, b"")
    said = tell(event, open_body(b'{"source":"u","time":"t","data":{"x":1}}'), "gpu-7")
    assert (said.topic, said.title, said.is_firing) == ("other", "io.hotstage.slo.burned.v3", None)


@pytest.mark.parametrize("data", ["1", "[]", '{"entity":3}', '{"cause":"x"}'])
def test_data_of_another_shape_is_refused(data):
    event = HeldEvent(1, "e", "io.hotstage.window.opened.v1", "w", 5, b"")
    with pytest.raises(msgspec.DecodeError):
        tell(event, open_body(f'{{"source":"u","time":"t","data":{data}}}'.encode()), "gpu-7")


def test_probes_that_are_off_fire_until_they_are_on_with_the_same_labels():
    maker = EventMaker("h")
    off = story(maker.switched(SwitchMove(5, "off", "uid 0 (root)", "a driver update")))
    back = story(maker.switched(SwitchMove(9, "on", "uid 7", None)))
    assert (off.topic, off.is_firing, off.kind, off.actor) == ("switch", True, "probes_off", "uid 0 (root)")
    assert off.text == "On gpu-7, by uid 0 (root): a driver update. Nothing is observed there"
    assert (back.is_firing, back.text) == (False, "On gpu-7, by uid 7: no reason was given")
    assert labels_of(off) == labels_of(back)
    assert labels_of(off)["alertname"] == "HotstageProbesOff"


def test_a_step_of_the_governor_is_news_and_no_trouble():
    step = Step(7, Level.full, Level.counts_only, "probes would cost 3.1% of its CPU time")
    said = story(EventMaker("h").stepped(step, 5))
    assert (said.topic, said.is_firing, said.severity) == ("other", None, "info")
    assert said.title == "Probes of process 7 are at level counts_only"
    assert said.text == "On gpu-7, from full: probes would cost 3.1% of its CPU time"
    assert said.parts == {"pid": "7"}
