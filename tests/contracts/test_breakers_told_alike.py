# SPDX-License-Identifier: Apache-2.0
"""Whoever asks about a breaker, wherever, hears the same: during a person's override, and after it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hotstage.api import documents
from hotstage.breaker.machine import Evidence, Policy, advance, set_override
from hotstage.breaker.page import BreakerPage, entry_of
from hotstage.breaker.record import BreakerRecord, BreakerState, Override, OverrideAction, Transition
from hotstage.cli import breakers as command
from hotstage.clock import boot_id
from hotstage.config.settings import PageConfig
from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.alert import labels_of
from hotstage.notify.formats.envelope import open_body
from hotstage.notify.formats.story import Story, tell
from hotstage.sinks import metrics
from hotstage.sinks.base import Tick
from hotstage.sinks.events import EventMaker
from hotstage.sinks.now import gauges
from hotstage.stages.pulse import quiet_pulse
from hotstage.windows.window import WindowUpdate
from hotstage_explorer import parse
from hotstage_explorer.components import breakers as panel
from hotstage_explorer.picture import Section
from hotstage_marks.breakers import BreakerPage as Caller

NAME = "stage:vision_encode:image"
SECOND = 1_000_000_000
SET_NS, TTL_NS = 100 * SECOND, 5 * SECOND


@dataclass(frozen=True)
class Heard:
    """What a caller does, and what each surface says of it."""

    caller_admits: bool
    heeded: dict[str, bool]
    stale: dict[str, bool]
    story: Story
    terminal: str
    explorer: str


@pytest.fixture
def hear(clock, tmp_path) -> Callable[[BreakerRecord, Transition], Heard]:
    """Everything that can be asked about a breaker, asked at one moment."""

    def ask(record: BreakerRecord, move: Transition) -> Heard:
        page = BreakerPage(tmp_path / "page", boot_id(), stale_after_ns=60 * SECOND)
        page.publish([entry_of(record, PageConfig())], time.monotonic_ns())
        caller = Caller(str(tmp_path / "page"))
        told = caller.get(NAME)
        assert told is not None
        http = json.loads(json.dumps(documents.breaker(record, clock)))
        at_ns = clock.wall_ns_of(record.updated_ns)
        (row,) = parse.breakers({"breakers": [http]})
        tick = Tick(quiet_pulse(record.updated_ns), WindowUpdate(), (record,), (move,), clock.wall_ns_of(0))
        found = gauges(tick)
        event = EventMaker("h").transition(move, clock.wall_ns_of(0))
        held = HeldEvent(1, event.id, event.type, event.subject, event.created_ns, event.body)
        story = tell(held, open_body(held.body), "gpu-7")
        heard = Heard(
            caller.allow(NAME),
            {
                "page": told.enforced,
                "http": http["enforced"],
                "metric": found[metrics.BREAKER_ENFORCED] == [((NAME,), 1.0)],
                "webhook": bool(story.enforced),
                "explorer": row.is_enforced,
            },
            {
                "page": told.stale,
                "http": http["stale"],
                "metric": found[metrics.BREAKER_STALE] == [((NAME,), 1.0)],
            },
            story,
            " | ".join(str(part) for part in command._row(http, at_ns)),
            panel.breakers(Section((row,), 1.0), at_ns).text(),
        )
        page.close()
        return heard

    return ask


def overridden(record: BreakerRecord, action: OverrideAction) -> tuple[BreakerRecord, Transition]:
    changed, move = set_override(record, Override(action, "uid 1000", "newcomer", SET_NS, SET_NS + TTL_NS))
    assert move is not None
    return changed, move


@pytest.mark.parametrize("own", [BreakerState.closed, BreakerState.open])
@pytest.mark.parametrize("enforced", [False, True])
@pytest.mark.parametrize("is_stale", [False, True])
def test_a_trip_is_heeded_everywhere_in_dry_run_too(make, hear, own, enforced, is_stale):
    record = make.breaker(state=own, enforced=enforced, is_stale=is_stale, updated_ns=SET_NS)
    heard = hear(*overridden(record, OverrideAction.force_open))
    assert not heard.caller_admits
    assert set(heard.heeded.values()) == {True}, heard.heeded
    assert set(heard.stale.values()) == {False}, heard.stale
    assert labels_of(heard.story)["severity"] == "critical"
    assert "dry run: callers are not" not in heard.story.text
    for words in ("forced_open", "heed it", "uid 1000", "5 s left", "newcomer", "window w-1"):
        assert words in heard.terminal
    for words in ("forced open", "enforced", "uid 1000", "5.0 s left", "newcomer", "window w-1"):
        assert words in heard.explorer
    assert "dry run" not in heard.terminal + heard.explorer


@pytest.mark.parametrize("action", [OverrideAction.disable, OverrideAction.metrics_only])
def test_what_a_person_has_admit_is_admitted_everywhere(make, hear, action):
    record = make.breaker(state=BreakerState.open, enforced=True, updated_ns=SET_NS)
    heard = hear(*overridden(record, action))
    assert heard.caller_admits
    assert set(heard.heeded.values()) == {False}, heard.heeded
    assert "(set by uid 1000: callers are told to admit)" in heard.story.text
    assert "dry run" not in heard.terminal + heard.explorer + heard.story.text
    assert "| admit |" in heard.terminal


@pytest.mark.parametrize("enforced", [False, True])
def test_after_its_time_the_policy_holds_again_everywhere(make, hear, enforced):
    record = make.breaker(state=BreakerState.open, enforced=enforced, updated_ns=SET_NS)
    tripped, _ = overridden(record, OverrideAction.force_open)
    after, move = advance(tripped, Evidence(window_id="w-1"), SET_NS + TTL_NS, Policy())
    assert move is not None
    heard = hear(after, move)
    assert heard.caller_admits is not enforced
    assert set(heard.heeded.values()) == {enforced}, heard.heeded
    assert labels_of(heard.story)["severity"] == ("critical" if enforced else "warning")
    for said in (heard.terminal, heard.explorer, heard.story.text):
        assert ("dry run" in said) is not enforced
        assert "newcomer" not in said
