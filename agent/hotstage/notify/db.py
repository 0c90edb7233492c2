# SPDX-License-Identifier: Apache-2.0
"""notify.db: events held for their destinations, what became of each, and how far the agent's outbox was
read.

The notifier alone writes it. An event counts as held when `hold` has returned: only then may the agent forget
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotstage.store.db import Cursor, Database, lock_directory

FILE_NAME = "notify.db"
KEEP_DELIVERED_NS = 7 * 86_400 * 1_000_000_000
KEEP_DEAD_NS = 30 * 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class HeldEvent:
    """One event as the agent's outbox gave it; `created_ns` is wall time, `body` JSON."""

    seq: int
    id: str
    type: str
    subject: str
    created_ns: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Job:
    """One delivery that is due: `attempts` were made before, the first chance was at `since_wall_ns`."""

    destination: str
    number: int
    event: HeldEvent
    attempts: int
    since_wall_ns: int


@dataclass(frozen=True, slots=True)
class Counts:
    """One destination: totals since the file was made, and what waits.

    `oldest_wall_ns` None: nothing waits.
    """

    name: str
    delivered: int
    failed: int
    dead: int
    pending: int
    oldest_wall_ns: int | None
    disabled_error: str | None


class NotifyDatabase:
    """All methods may be called from any thread and raise StoreError."""

    def __init__(self, directory: Path) -> None:
        self._lock = lock_directory(directory, "notify.directory")
        try:
            self.database = Database(directory / FILE_NAME, "hotstage.notify.migrations")
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        self.database.close()
        os.close(self._lock)

    def register(self, urls: Mapping[str, str]) -> None:
        """The destinations in use, name → URL. One whose URL has changed is in use again."""
        with self.database.transaction() as cursor:
            cursor.executemany(
                "INSERT INTO destinations (name, url) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET"
                " disabled_error = CASE WHEN url = excluded.url THEN disabled_error END, url = excluded.url",
                list(urls.items()),
            )

    def progress(self) -> tuple[str | None, int]:
        """(store id, sequence number) up to which events are held; (None, 0) before the first."""
        rows = self.database.read("SELECT store_id, seq FROM progress")
        return (str(rows[0][0]), int(rows[0][1])) if rows else (None, 0)  # type: ignore[arg-type]

    def hold(
        self, store_id: str, events: Sequence[HeldEvent], wanted_by: Sequence[Sequence[str]], now_ns: int
    ) -> None:
        """Take `events` over, each for the destinations beside it, and remember how far it went: all or
        nothing.

        An event that is held already is not queued again. What a disabled destination would get is dead at
        once.
        """
        with self.database.transaction() as cursor:
            refused = dict(
                cursor.execute(
                    "SELECT name, disabled_error FROM destinations WHERE disabled_error IS NOT NULL"
                ).fetchall()
            )
            for event, names in zip(events, wanted_by, strict=True):
                if names:
                    _queue(cursor, event, names, refused, now_ns)
            if events:
                cursor.execute(
                    "INSERT INTO progress (only_row, store_id, seq) VALUES (1, ?, ?) ON CONFLICT (only_row)"
                    " DO UPDATE SET store_id = excluded.store_id, seq = excluded.seq",
                    (store_id, events[-1].seq),
                )

    def next_due(self, destination: str, now_ns: int) -> Job | None:
        """The oldest delivery that is due and first in line for its subject, or None."""
        rows = self.database.read(
            "SELECT d.number, d.attempts, d.since_wall_ns,"
            " e.seq, e.id, e.type, e.subject, e.created_ns, e.body"
            " FROM deliveries d JOIN events e USING (number)"
            " WHERE d.destination = ? AND d.state = 'pending' AND d.due_wall_ns <= ? AND NOT EXISTS"
            " (SELECT 1 FROM deliveries f WHERE f.destination = d.destination AND f.subject = d.subject"
            " AND f.state = 'pending' AND f.number < d.number) ORDER BY d.number LIMIT 1",
            (destination, now_ns),
        )
        if not rows:
            return None
        number, attempts, since, *event = rows[0]
        return Job(destination, int(number), HeldEvent(*event), int(attempts), int(since))  # type: ignore[arg-type]

    def next_due_at(self, destination: str) -> int | None:
        """Wall time of the next delivery that may become due, None if nothing waits."""
        ((due,),) = self.database.read(
            "SELECT min(due_wall_ns) FROM deliveries WHERE destination = ? AND state = 'pending'",
            (destination,),
        )
        return None if due is None else int(due)

    def delivered(self, job: Job, now_ns: int) -> None:
        self._end(job, "delivered", None, now_ns)

    def dead(self, job: Job, error: str, now_ns: int) -> None:
        self._end(job, "dead", error, now_ns)

    def retry(self, job: Job, error: str, due_wall_ns: int) -> None:
        with self.database.transaction() as cursor:
            cursor.execute(
                "UPDATE deliveries SET attempts = attempts + 1, due_wall_ns = ?, error = ?"
                " WHERE destination = ? AND number = ?",
                (due_wall_ns, error, job.destination, job.number),
            )
            cursor.execute("UPDATE destinations SET failed = failed + 1 WHERE name = ?", (job.destination,))

    def disable(self, destination: str, error: str, now_ns: int) -> None:
        """The destination wants no more: everything that waits for it is dead, replayable once it is back."""
        with self.database.transaction() as cursor:
            gone = cursor.execute(
                "UPDATE deliveries SET state = 'dead', error = ?, ended_wall_ns = ?"
                " WHERE destination = ? AND state = 'pending'",
                (error, now_ns, destination),
            ).rowcount
            cursor.execute(
                "UPDATE destinations SET disabled_error = ?, failed = failed + 1, dead = dead + ?"
                " WHERE name = ?",
                (error, gone, destination),
            )

    def replay(self, destination: str | None, now_ns: int) -> int:
        """Queue the dead letters of one destination, or of all, once more, and use it again. How many."""
        with self.database.transaction() as cursor:
            cursor.execute(
                "UPDATE destinations SET disabled_error = NULL WHERE name = coalesce(?, name)", (destination,)
            )
            return cursor.execute(
                "UPDATE deliveries SET state = 'pending', attempts = 0, since_wall_ns = ?, due_wall_ns = ?,"
                " ended_wall_ns = NULL WHERE state = 'dead' AND destination = coalesce(?, destination)",
                (now_ns, now_ns, destination),
            ).rowcount

    def counts(self, names: Iterable[str]) -> list[Counts]:
        """Of the destinations in use."""
        totals = {
            str(name): totals
            for name, *totals in self.database.read(
                "SELECT name, delivered, failed, dead, disabled_error FROM destinations"
            )
        }
        waiting = {
            str(name): (pending, oldest)
            for name, pending, oldest in self.database.read(
                "SELECT destination, count(*), min(since_wall_ns) FROM deliveries WHERE state = 'pending'"
                " GROUP BY destination"
            )
        }
        found = []
        for name in names:
            delivered, failed, dead, error = totals.get(name, (0, 0, 0, None))
            pending, oldest = waiting.get(name, (0, None))
            found.append(Counts(name, delivered, failed, dead, pending, oldest, error))  # type: ignore[arg-type]
        return found

    def prune(self, now_ns: int) -> None:
        """Forget what was delivered a week ago and what has been dead for a month."""
        with self.database.transaction() as cursor:
            cursor.execute(
                "DELETE FROM deliveries WHERE (state = 'delivered' AND ended_wall_ns < ?)"
                " OR (state = 'dead' AND ended_wall_ns < ?)",
                (now_ns - KEEP_DELIVERED_NS, now_ns - KEEP_DEAD_NS),
            )
            cursor.execute("DELETE FROM events WHERE number NOT IN (SELECT number FROM deliveries)")
        self.database.give_back_pages(4096)

    def _end(self, job: Job, state: str, error: str | None, now_ns: int) -> None:
        with self.database.transaction() as cursor:
            cursor.execute(
                "UPDATE deliveries SET state = ?, error = ?, ended_wall_ns = ?, attempts = attempts + 1"
                " WHERE destination = ? AND number = ?",
                (state, error, now_ns, job.destination, job.number),
            )
            is_dead = state == "dead"
            cursor.execute(
                "UPDATE destinations SET delivered = delivered + ?, dead = dead + ?, failed = failed + ?"
                " WHERE name = ?",
                (not is_dead, is_dead, is_dead, job.destination),
            )


def _queue(
    cursor: Cursor, event: HeldEvent, names: Sequence[str], refused: Mapping[str, str], now_ns: int
) -> None:
    """One event for its destinations, unless it is held already."""
    added = cursor.execute(
        "INSERT INTO events (id, seq, type, subject, created_ns, body) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO NOTHING",
        (event.id, event.seq, event.type, event.subject, event.created_ns, event.body),
    )
    if not added.rowcount:
        return
    number = cursor.lastrowid
    for name in names:
        error = refused.get(name)
        state, ended_ns = ("dead", now_ns) if error else ("pending", None)
        cursor.execute(
            "INSERT INTO deliveries (destination, number, subject, state, since_wall_ns, due_wall_ns,"
            " ended_wall_ns, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (name, number, event.subject, state, now_ns, now_ns, ended_ns, error),
        )
        if error:
            cursor.execute("UPDATE destinations SET dead = dead + 1 WHERE name = ?", (name,))
