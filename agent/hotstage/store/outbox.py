# SPDX-License-Identifier: Apache-2.0
"""The outbox: events written with the change they tell of, until the notifier has them in its own database.

A sequence number is given once and never again; acknowledged rows are gone. It knows no HTTP and no
destination.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hotstage.store.db import Cursor, Database


@dataclass(frozen=True, slots=True)
class Event:
    """One event to tell the world; `body` is JSON, `created_ns` wall time, `id` the same for ever."""

    id: str
    type: str
    subject: str
    created_ns: int
    body: bytes


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An event with its place in line."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class OutboxState:
    """What still waits for the notifier; `oldest_created_ns` is None when nothing does."""

    pending: int
    oldest_created_ns: int | None
    enqueued_total: int


def append(cursor: Cursor, events: Iterable[Event]) -> None:
    """Within the transaction of the change. An id that is there already is not written twice."""
    cursor.executemany(
        "INSERT INTO outbox (id, type, subject, created_ns, body) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO NOTHING",
        [(event.id, event.type, event.subject, event.created_ns, event.body) for event in events],
    )


def after(database: Database, seq: int, limit: int) -> list[OutboxRow]:
    """Up to `limit` rows with a greater sequence number, in order."""
    rows = database.read(
        "SELECT seq, id, type, subject, created_ns, body FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?",
        (seq, limit),
    )
    return [OutboxRow(row_seq, Event(*event)) for row_seq, *event in rows]  # type: ignore[arg-type]


def acknowledge(database: Database, seq: int) -> int:
    """The notifier holds everything up to `seq`: forget it. How many rows went."""
    with database.transaction(settles=True) as cursor:
        return cursor.execute("DELETE FROM outbox WHERE seq <= ?", (seq,)).rowcount


def expire(cursor: Cursor, before_wall_ns: int) -> int:
    """Rows that no notifier ever came for; the caller counts them as lost."""
    return cursor.execute("DELETE FROM outbox WHERE created_ns < ?", (before_wall_ns,)).rowcount


def state(database: Database) -> OutboxState:
    """Rows waiting, the oldest one's wall time, and how many were ever enqueued in this file."""
    ((pending, oldest),) = database.read("SELECT count(*), min(created_ns) FROM outbox")
    last = database.read("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
    return OutboxState(
        _int(pending), None if oldest is None else _int(oldest), _int(last[0][0]) if last else 0
    )


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
