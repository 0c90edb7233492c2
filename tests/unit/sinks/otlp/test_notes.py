# SPDX-License-Identifier: Apache-2.0
"""The queue between the tick and the exporter, and what became of the spans."""

from __future__ import annotations

import numpy as np

from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.sinks.otlp.notes import EXPORT_FAILED, REASONS, Notes, Outcome, spans_of


def test_notes_come_out_in_order_once(a_note):
    notes = Notes()
    first, second = a_note(), a_note()
    assert notes.put(first)
    assert notes.put(second)
    assert notes.take() == [first, second]
    assert notes.take() == []


def test_requests_take_room_until_they_are_settled(a_note, a_request):
    notes = Notes(limit=3)
    two = a_note([a_request(1), a_request(2)])
    assert notes.put(two)
    assert not notes.put(two)
    notes.take()
    assert not notes.put(two), "taken is not settled"
    notes.settle(2)
    assert notes.put(two)


def test_notes_without_requests_are_bounded_too(a_note):
    notes = Notes(limit=2)
    assert [notes.put(a_note()) for _ in range(3)] == [True, True, False]


def test_a_request_makes_a_span_and_one_for_each_stage_that_ended(a_request):
    rows = np.array([a_request(1), a_request(2)], FINISHED_DTYPE)
    assert spans_of(rows) == 6
    assert spans_of(rows[:0]) == 0


def test_every_reason_is_counted_from_the_start():
    outcome = Outcome(["traces"])
    assert outcome.state().dropped == dict.fromkeys(REASONS, 0)
    assert outcome.state().failures == {"traces": 0}
    outcome.exported(5)
    outcome.dropped(EXPORT_FAILED, 3)
    outcome.failed("traces")
    outcome.events_dropped(2)
    state = outcome.state()
    assert (state.exported, state.dropped[EXPORT_FAILED], state.failures["traces"]) == (5, 3, 1)
    assert state.events_dropped == 2
