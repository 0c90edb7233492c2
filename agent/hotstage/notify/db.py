# SPDX-License-Identifier: Apache-2.0
"""notify.db: events held for their destinations, what became of each, and how far the agent's outbox was
read.

The notifier alone writes it. An event counts as held when `hold` has returned: only then may the agent forget
it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotstage.clock import Clock, SystemClock
from hotstage.errors import StoreError
from hotstage.notify.run_clock import RunClock
from hotstage.store.db import Cursor, Database, lock_directory

FILE_NAME = "notify.db"
KEEP_DELIVERED_NS = 7 * 86_400 * 1_000_000_000
KEEP_DEAD_NS = 30 * 86_400 * 1_000_000_000
_PRUNED_ROWS = 128


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
    """One delivery that is due: `attempts` were made before, the first chance was at `since_run_ns`."""

    destination: str
    number: int
    event: HeldEvent
    attempts: int
    since_run_ns: int


@dataclass(frozen=True, slots=True)
class Counts:
    """One destination: totals since the file was made, what waits, and how it went last. Times are wall ns.

    `oldest_wall_ns` None: nothing waits. `disabled_error` None: it is in use.
    """

    name: str
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    disabled_error: str | None = None
    disabled_wall_ns: int | None = None
    delivered_wall_ns: int | None = None
    error: str | None = None
    error_wall_ns: int | None = None
    pending: int = 0
    oldest_wall_ns: int | None = None


class NotifyDatabase:
    """All methods may be called from any thread and raise StoreError."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._lock: int | None = lock_directory(directory, "notify.directory")
        try:
            self.database = Database(directory / FILE_NAME, "hotstage.notify.migrations")
            self.run_clock = RunClock(self.database, clock or SystemClock())
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """A clean end; closing again is nothing. What cannot be written any more is not worth a failure."""
        if self._lock is None:
            return
        with contextlib.suppress(StoreError):
            self.keep_time()
        self.database.close()
        os.close(self._lock)
        self._lock = None

    def keep_time(self) -> None:
        """So that a run that is killed does not wait anew for what it has waited for."""
        with self.database.transaction(settles=True) as cursor:
            self.run_clock.keep(cursor)

    def register(self, identities: Mapping[str, str]) -> None:
        """The destinations in use, name → what tells its URL. One whose URL has changed is in use again.

        One that is gone will not hear how its alerts end: they are forgotten.
        """
        with self.database.transaction() as cursor:
            cursor.executemany(
                "INSERT INTO destinations (name, url) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET"
                " disabled_error = CASE WHEN url = excluded.url THEN disabled_error END, url = excluded.url",
                list(identities.items()),
            )
            marks = ", ".join("?" * len(identities))
            cursor.execute(f"DELETE FROM standing WHERE destination NOT IN ({marks})", list(identities))  # noqa: S608

    def progress(self) -> tuple[str | None, int]:
        """(store id, sequence number) up to which events are held; (None, 0) before the first."""
        rows = self.database.read("SELECT store_id, seq FROM progress")
        return (str(rows[0][0]), int(rows[0][1])) if rows else (None, 0)  # type: ignore[arg-type]

    def hold(
        self, store_id: str, events: Sequence[HeldEvent], wanted_by: Sequence[Sequence[str]], now_ns: int
    ) -> None:
        """Take `events` over, each for the destinations beside it, and how far it went: all or nothing.

        An event that is held already is not queued again. What a disabled destination would get is dead.
        """
        with self.database.transaction() as cursor:
            if events:
                _advance(cursor, store_id, events[-1].seq)
            refused = dict(
                cursor.execute(
                    "SELECT name, disabled_error FROM destinations WHERE disabled_error IS NOT NULL"
                ).fetchall()
            )
            for event, names in zip(events, wanted_by, strict=True):
                if names:
                    _queue(cursor, event, names, refused, now_ns, self.run_clock.now_ns())
            self.run_clock.keep(cursor)

    def next_due(self, destination: str) -> Job | None:
        """The oldest delivery that is due and first in line for its subject, or None."""
        rows = self.database.read(
            "SELECT d.number, d.attempts, d.since_run_ns,"
            " e.seq, e.id, e.type, e.subject, e.created_ns, e.body"
            " FROM deliveries d JOIN events e USING (number)"
            " WHERE d.destination = ? AND d.state = 'pending' AND d.due_run_ns <= ? AND NOT EXISTS"
            " (SELECT 1 FROM deliveries f WHERE f.destination = d.destination AND f.subject = d.subject"
            " AND f.state = 'pending' AND f.number < d.number) ORDER BY d.number LIMIT 1",
            (destination, self.run_clock.now_ns()),
        )
        if not rows:
            return None
        number, attempts, since, *event = rows[0]
        return Job(destination, int(number), HeldEvent(*event), int(attempts), int(since))  # type: ignore[arg-type]

    def next_due_in(self, destination: str) -> float | None:
        """Seconds (0 at least) until a delivery that is first in line for its subject, None if none waits."""
        ((due,),) = self.database.read(
            "SELECT min(d.due_run_ns) FROM deliveries d WHERE d.destination = ? AND d.state = 'pending'"
            " AND NOT EXISTS (SELECT 1 FROM deliveries f WHERE f.destination = d.destination"
            " AND f.subject = d.subject AND f.state = 'pending' AND f.number < d.number)",
            (destination,),
        )
        return None if due is None else max(0, int(due) - self.run_clock.now_ns()) / 1e9

    def delivered(self, job: Job, now_ns: int, note: Callable[[Cursor], None] = lambda cursor: None) -> None:
        """`note` writes what else the receiver now knows, in the same transaction.

        A delivery that has an earlier one of its subject before it again, because of a replay meanwhile, is
        made once more after that one: the last thing a receiver hears of a subject is the newest.
        """
        with self.database.transaction(settles=True) as cursor:
            note(cursor)
            cursor.execute(
                "UPDATE deliveries SET state = CASE WHEN EXISTS (SELECT 1 FROM deliveries f"
                " WHERE f.destination = deliveries.destination AND f.subject = deliveries.subject"
                " AND f.state = 'pending' AND f.number < deliveries.number)"
                " THEN 'pending' ELSE 'delivered' END, error = NULL, ended_wall_ns = ?,"
                " attempts = attempts + 1 WHERE destination = ? AND number = ?",
                (now_ns, job.destination, job.number),
            )
            cursor.execute(
                "UPDATE destinations SET delivered = delivered + 1, delivered_wall_ns = ? WHERE name = ?",
                (now_ns, job.destination),
            )

    def dead(self, job: Job, error: str, now_ns: int) -> None:
        with self.database.transaction(settles=True) as cursor:
            cursor.execute(
                "UPDATE deliveries SET state = 'dead', error = ?, ended_wall_ns = ?, attempts = attempts + 1"
                " WHERE destination = ? AND number = ?",
                (error, now_ns, job.destination, job.number),
            )
            cursor.execute("UPDATE destinations SET dead = dead + 1 WHERE name = ?", (job.destination,))
            _note_failure(cursor, job.destination, error, now_ns)

    def retry(self, job: Job, error: str, delay_seconds: float, now_ns: int) -> None:
        with self.database.transaction(settles=True) as cursor:
            cursor.execute(
                "UPDATE deliveries SET attempts = attempts + 1, due_run_ns = ?, error = ?"
                " WHERE destination = ? AND number = ?",
                (self.run_clock.now_ns() + round(delay_seconds * 1e9), error, job.destination, job.number),
            )
            self.run_clock.keep(cursor)
            _note_failure(cursor, job.destination, error, now_ns)

    def disable(self, destination: str, error: str, now_ns: int) -> None:
        """The destination wants no more: everything that waits for it is dead, replayable once it is back."""
        with self.database.transaction(settles=True) as cursor:
            gone = cursor.execute(
                "UPDATE deliveries SET state = 'dead', error = ?, ended_wall_ns = ?"
                " WHERE destination = ? AND state = 'pending'",
                (error, now_ns, destination),
            ).rowcount
            cursor.execute(
                "UPDATE destinations SET disabled_error = ?, disabled_wall_ns = ?, dead = dead + ?"
                " WHERE name = ?",
                (error, now_ns, gone, destination),
            )
            _note_failure(cursor, destination, error, now_ns)

    def failed(self, destination: str, error: str, now_ns: int) -> None:
        """A failure that was no attempt's: counted and shown like one."""
        with self.database.transaction(settles=True) as cursor:
            _note_failure(cursor, destination, error, now_ns)

    def counts(self, names: Iterable[str]) -> list[Counts]:
        """Of the destinations in use."""
        return counts(self.database, names)

    def prune(self, now_ns: int) -> None:
        """Forget what was delivered a week ago and what has been dead for a month."""
        with self.database.transaction(settles=True) as cursor:
            # Before what ended them is forgotten.
            cursor.execute(
                "DELETE FROM standing WHERE EXISTS (SELECT 1 FROM deliveries d WHERE d.destination ="
                " standing.destination AND d.subject = standing.subject AND d.number > standing.number)"
                " OR number < (SELECT coalesce(max(first_number), 0) FROM progress)"
            )
        self._delete(
            "deliveries WHERE (destination, number) IN (SELECT destination, number FROM deliveries WHERE"
            " (state = 'delivered' AND ended_wall_ns < ?) OR (state = 'dead' AND ended_wall_ns < ?) LIMIT ?)",
            (now_ns - KEEP_DELIVERED_NS, now_ns - KEEP_DEAD_NS),
        )
        self._delete(
            "events WHERE number IN"
            " (SELECT number FROM events WHERE number NOT IN (SELECT number FROM deliveries) LIMIT ?)"
        )
        self.database.give_back_pages(4096)

    def _delete(self, some: str, parameters: Sequence[int] = ()) -> None:
        """All of it, a little at a time: on a full disk there is room for no more."""
        gone = 1
        while gone > 0:
            with self.database.transaction(settles=True) as cursor:
                gone = cursor.execute(f"DELETE FROM {some}", (*parameters, _PRUNED_ROWS)).rowcount  # noqa: S608


def counts(database: Database, names: Iterable[str]) -> list[Counts]:
    """One for each name, in their order; all zero for one that was never registered."""
    totals = {
        str(name): row
        for name, *row in database.read(
            "SELECT name, delivered, failed, dead, disabled_error, disabled_wall_ns, delivered_wall_ns,"
            " error, error_wall_ns FROM destinations"
        )
    }
    waiting = {
        str(name): row
        for name, *row in database.read(
            "SELECT destination, count(*), min(since_wall_ns) FROM deliveries WHERE state = 'pending'"
            " GROUP BY destination"
        )
    }
    nothing = [0, 0, 0, None, None, None, None, None]
    return [Counts(name, *totals.get(name, nothing), *waiting.get(name, [0, None])) for name in names]


def _advance(cursor: Cursor, store_id: str, seq: int) -> None:
    """Remember how far the agent's outbox was read; another store begins where its first event will be."""
    cursor.execute(
        "INSERT INTO progress (only_row, store_id, seq) VALUES (1, ?, ?) ON CONFLICT (only_row)"
        " DO UPDATE SET store_id = excluded.store_id, seq = excluded.seq, first_number ="
        " CASE WHEN store_id = excluded.store_id THEN first_number"
        " ELSE (SELECT coalesce(max(number), 0) + 1 FROM events) END",
        (store_id, seq),
    )


def _note_failure(cursor: Cursor, destination: str, error: str, now_ns: int) -> None:
    cursor.execute(
        "UPDATE destinations SET failed = failed + 1, error = ?, error_wall_ns = ? WHERE name = ?",
        (error, now_ns, destination),
    )


def _queue(
    cursor: Cursor,
    event: HeldEvent,
    names: Sequence[str],
    refused: Mapping[str, str],
    now_ns: int,
    run_ns: int,
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
            "INSERT INTO deliveries (destination, number, subject, state, since_wall_ns, since_run_ns,"
            " due_run_ns, ended_wall_ns, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (name, number, event.subject, state, now_ns, run_ns, run_ns, ended_ns, error),
        )
        if error:
            cursor.execute("UPDATE destinations SET dead = dead + 1 WHERE name = ?", (name,))
