# SPDX-License-Identifier: Apache-2.0
"""Events wait in line until they are acknowledged."""

from __future__ import annotations

from hotstage.store import outbox


def put(store, *events):
    with store.database.transaction() as cursor:
        outbox.append(cursor, events)


def test_rows_come_in_order_after_a_sequence_number(store, make):
    put(store, make.event("a"), make.event("b"), make.event("c"))
    assert [(row.seq, row.event.id) for row in outbox.after(store.database, 1, 10)] == [(2, "b"), (3, "c")]
    assert [row.event.id for row in outbox.after(store.database, 0, 2)] == ["a", "b"]


def test_an_event_comes_back_whole(store, make):
    event = make.event(body='{"ü": null}'.encode(), created_ns=17)
    put(store, event)
    assert outbox.after(store.database, 0, 1) == [outbox.OutboxRow(1, event)]


def test_an_event_is_written_once_however_often_it_is_appended(store, make):
    put(store, make.event("a"))
    put(store, make.event("a"), make.event("b"))
    assert [row.event.id for row in outbox.after(store.database, 0, 10)] == ["a", "b"]


def test_acknowledged_rows_go_and_their_numbers_never_come_back(store, make):
    put(store, make.event("a"), make.event("b"))
    assert outbox.acknowledge(store.database, 2) == 2
    put(store, make.event("c"))
    assert [(row.seq, row.event.id) for row in outbox.after(store.database, 0, 10)] == [(3, "c")]


def test_state_tells_what_waits_since_when_and_what_ever_was(store, make):
    assert outbox.state(store.database) == outbox.OutboxState(0, None, 0)
    put(store, make.event("a", created_ns=50), make.event("b", created_ns=70))
    outbox.acknowledge(store.database, 1)
    assert outbox.state(store.database) == outbox.OutboxState(1, 70, 2)


def test_rows_that_nobody_fetched_expire_and_are_counted(store, make):
    put(store, make.event("old", created_ns=5), make.event("young", created_ns=50))
    with store.database.transaction() as cursor:
        assert outbox.expire(cursor, before_wall_ns=10) == 1
    assert [row.event.id for row in outbox.after(store.database, 0, 10)] == ["young"]
