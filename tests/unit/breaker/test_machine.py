# SPDX-License-Identifier: Apache-2.0
"""The breaker as dialogues: (seconds, what is seen) → the state that shows."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hotstage.breaker.machine import TRANSITIONS_KEPT, Evidence, Policy, advance, clear_override, set_override
from hotstage.breaker.record import BreakerRecord, BreakerState, Override, OverrideAction
from hotstage.frame.entity import Entity, EntityKind

SECOND = 1_000_000_000
SCOPE = Entity(EntityKind.stage, stage="vision_encode", modality="image")
NEW = BreakerRecord("stage:vision_encode:image", SCOPE, enforced=False)

GOOD = Evidence(samples=9, ended_well=1)
BAD = Evidence(window_id="w1", reason="slow", samples=9)
HARD = replace(BAD, is_hard=True, samples=0)
IDLE = Evidence(samples=9)
STALE = Evidence(is_stale=True)
FAILS = Evidence(samples=9, ended_badly=1)

DIALOGUES = {
    "two bad looks of three open it": [(0, BAD, "closed"), (1, BAD, "open")],
    "one bad look in three does not": [
        (0, BAD, "closed"),
        (1, GOOD, "closed"),
        (2, GOOD, "closed"),
        (3, BAD, "closed"),
    ],
    "a hard fact opens it at once": [(0, HARD, "open")],
    "without samples a soft one does not": [
        (0, replace(BAD, samples=0), "closed"),
        (1, replace(BAD, samples=0), "closed"),
    ],
    "the share cap holds it closed": [(0, replace(HARD, may_open=False), "closed"), (1, HARD, "open")],
    "it stays open while the window is, cool-down or not": [
        (0, HARD, "open"),
        (11, BAD, "open"),
        (60, BAD, "open"),
    ],
    "cool-down over and no window: half-open": [
        (0, HARD, "open"),
        (5, GOOD, "open"),
        (10, GOOD, "half_open"),
    ],
    "five good ends and five clear seconds close it": [
        (0, HARD, "open"),
        (10, GOOD, "half_open"),
        (11, GOOD, "half_open"),
        (12, GOOD, "half_open"),
        (13, GOOD, "half_open"),
        (14, GOOD, "half_open"),
        (15, GOOD, "closed"),
    ],
    "time alone does not close it": [(0, HARD, "open"), (10, IDLE, "half_open"), (600, IDLE, "half_open")],
    "traffic alone does not close it": [
        (0, HARD, "open"),
        (10, GOOD, "half_open"),
        *((10 + n / 10, GOOD, "half_open") for n in range(1, 40)),
    ],
    "probes that fail do not close it": [
        (0, HARD, "open"),
        (10, GOOD, "half_open"),
        *((10 + n, replace(GOOD, ended_badly=1), "half_open") for n in range(1, 30)),
    ],
    "a window in half-open opens it again for twice as long": [
        (0, HARD, "open"),
        (10, IDLE, "half_open"),
        (11, BAD, "open"),
        (30.9, IDLE, "open"),
        (31, IDLE, "half_open"),
    ],
    "no data moves nothing": [
        (0, HARD, "open"),
        (30, STALE, "open"),
        (31, IDLE, "half_open"),
        (99, STALE, "half_open"),
    ],
}


@pytest.mark.parametrize("dialogue", DIALOGUES.values(), ids=DIALOGUES.keys())
def test_dialogue(dialogue):
    record = NEW
    for seconds, evidence, shown in dialogue:
        before = record.shown
        record, transition = advance(record, evidence, round(seconds * SECOND), Policy())
        assert record.shown == shown, f"at {seconds} s"
        assert (transition is not None) == (before is not record.shown)
        assert record.is_stale is evidence.is_stale


def test_the_cool_down_is_capped():
    record, now, policy = NEW, 0, Policy(cool_down_max_ns=35 * SECOND)
    for _ in range(6):
        record, _ = advance(record, HARD, now, policy)
        now += 40 * SECOND
        record, _ = advance(record, IDLE, now, policy)
        assert record.shown == "half_open"
    assert record.cool_down_ns == 35 * SECOND
    assert record.relapses == 5


def test_a_transition_says_why_and_for_which_window():
    _, transition = advance(NEW, HARD, SECOND, Policy())
    assert (transition.from_state, transition.to_state, transition.reason) == ("closed", "open", "slow")
    assert (transition.window_id, transition.at_ns, transition.enforced) == ("w1", SECOND, False)


def order(action, until=60):
    return Override(action, "uid:1000", "maintenance", 0, until * SECOND)


def test_an_override_shows_while_the_state_moves_underneath():
    record, transition = set_override(NEW, order(OverrideAction.disable))
    assert (transition.to_state, transition.actor) == ("disabled", "uid:1000")
    record, transition = advance(record, HARD, SECOND, Policy())
    assert (record.shown, record.state, transition) == ("disabled", "open", None)
    record, transition = advance(record, HARD, 60 * SECOND, Policy())
    assert (transition.from_state, transition.to_state) == ("disabled", "open")
    assert record.override is None


def test_an_override_can_be_taken_back_and_replaced():
    record, _ = set_override(NEW, order(OverrideAction.force_open))
    record, transition = set_override(record, order(OverrideAction.metrics_only))
    assert (transition.from_state, transition.to_state) == ("forced_open", "metrics_only")
    record, transition = clear_override(record, "uid:0", SECOND)
    assert (record.shown, transition.actor) == ("closed", "uid:0")
    assert clear_override(record, "uid:0", SECOND) == (record, None)


LEGAL = {
    ("closed", "open"),
    ("open", "half_open"),
    ("half_open", "open"),
    ("half_open", "closed"),
}


class Machine(RuleBasedStateMachine):
    """Any evidence in any order: no illegal move, and what must hold holds."""

    def __init__(self):
        super().__init__()
        self.record, self.now, self.policy = NEW, 0, Policy()
        self.opened_ns = self.clear_since = None

    @rule(
        step=st.integers(1, 30 * SECOND),
        bad=st.booleans(),
        hard=st.booleans(),
        stale=st.booleans(),
        samples=st.integers(0, 3),
        well=st.integers(0, 4),
        badly=st.integers(0, 2),
    )
    def look(self, step, bad, hard, stale, samples, well, badly):
        self.now += step
        evidence = Evidence(
            window_id="w" if bad else None,
            window_opened_ns=0,
            is_hard=bad and hard,
            is_stale=stale,
            samples=samples,
            ended_well=well,
            ended_badly=badly,
        )
        before, override = self.record, self.record.override
        self.record, transition = advance(before, evidence, self.now, self.policy)
        after = self.record
        if before.state is not after.state:
            assert (before.state, after.state) in LEGAL
            assert not stale
            if after.state is BreakerState.half_open:
                assert not bad and self.now - before.since_ns >= before.cool_down_ns
            if after.state is BreakerState.closed:
                assert not bad and self.now - before.since_ns >= self.policy.close_for_ns
            if after.state is BreakerState.open:
                assert bad
        if stale:
            assert after.state is before.state
        assert (transition is not None) == (before.shown is not after.shown)
        if override is not None and self.now < override.until_ns:
            assert transition is None

    @rule(action=st.sampled_from(OverrideAction), ttl=st.integers(1, 100))
    def override(self, action, ttl):
        order = Override(action, "uid:0", "", self.now, self.now + ttl * SECOND)
        state = self.record.state
        self.record, _ = set_override(self.record, order)
        assert self.record.state is state

    @rule()
    def reset(self):
        self.record, _ = clear_override(self.record, "uid:0", self.now)
        assert self.record.shown is self.record.state

    @invariant()
    def is_bounded(self):
        assert len(self.record.transitions) <= TRANSITIONS_KEPT
        assert self.record.state in ("closed", "open", "half_open")
        assert self.record.cool_down_ns <= self.policy.cool_down_max_ns


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
