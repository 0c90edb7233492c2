# SPDX-License-Identifier: Apache-2.0
"""What one receiver of alerts was told and must be told again. Kept in notify.db: a restart goes on with it.

An alert is what its subject is *now*: however late an event is delivered, and however often it is replayed,
nothing that has ended begins again. Labels stay those it began with, so that Alertmanager sees one alert;
only a breaker that callers begin to heed, or no longer heed, goes on as another alert, of that severity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hotstage.notify.attempt import Message
from hotstage.notify.db import HeldEvent, Job, NotifyDatabase
from hotstage.notify.formats import FORMATS, alertmanager, alertmanager_webhook
from hotstage.notify.formats.alert import Alert, alert_of, fingerprint
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import open_body
from hotstage.notify.formats.story import Story, tell
from hotstage.store.db import Cursor

_EVENT = "e.seq, e.id, e.type, e.subject, e.created_ns, e.body"


@dataclass(frozen=True, slots=True)
class Told:
    """A message, and what to write once the receiver has it."""

    message: Message
    note: Callable[[Cursor], None]


@dataclass(frozen=True, slots=True)
class _Now:
    """A subject as it stands: its alert without an end, its newest event and that one's story.

    `over`: the alert that it was until now, and that this one takes the place of.
    """

    alert: Alert
    story: Story
    number: int
    over: Alert | None = None


class Alerts:
    """Of one destination. Raises StoreError; not thread-safe."""

    def __init__(self, destination: str, format_name: str, database: NotifyDatabase) -> None:
        self._destination = destination
        self._is_state = format_name == "alertmanager"
        self._content_type = FORMATS[format_name].CONTENT_TYPE
        self._database = database

    def message(self, job: Job, context: Context) -> Told:
        """What to post for a delivery. Raises msgspec.DecodeError."""
        now = self._now(job, context)
        mark = fingerprint(now.alert.labels)
        if now.story.is_firing:
            due_ns = self._database.run_clock.now_ns() + round(context.resend_seconds * 1e9)
            row = (
                self._destination,
                job.event.subject,
                now.number,
                mark,
                msgspec.json.encode(now.alert),
                due_ns,
            )
            message = self._encoded(job.event.id, now.alert, None, context, now.over)
            return Told(message, lambda cursor: _stand(cursor, row))
        # Another trouble with the same labels is the same alert to the receiver, and it goes on.
        twin = self._twin(mark, job.event.subject)
        ended_at = now.story.ended_at or open_body(job.event.body).time
        message = self._encoded(job.event.id, twin or now.alert, None if twin else ended_at, context)
        key = (self._destination, job.event.subject)
        return Told(message, lambda cursor: _fall(cursor, key))

    def due(self, context: Context) -> tuple[Message, list[str]] | None:
        """What fires and has to be told again, and the subjects it is about; None if nothing has to be.

        Never what an event that is held already may end, wherever that is in the queue.
        """
        if not self._is_state:
            return None
        rows = self._database.database.read(
            "SELECT s.subject, s.alert FROM standing s JOIN destinations t ON t.name = s.destination"
            " WHERE s.destination = ? AND s.due_run_ns <= ? AND t.disabled_error IS NULL"
            " AND s.number >= (SELECT coalesce(max(first_number), 0) FROM progress)"
            " AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.destination = s.destination"
            " AND d.subject = s.subject AND d.number > s.number) ORDER BY s.number",
            (self._destination, self._database.run_clock.now_ns()),
        )
        if not rows:
            return None
        alerts = [alertmanager.held_up(_alert(row[1]), context) for row in rows]
        message = Message(f"alerts_{context.sent_ns}", self._content_type, alertmanager.encode(alerts))
        return message, [str(row[0]) for row in rows]

    def told_again(self, subjects: Sequence[str], again_in_seconds: float) -> None:
        """When they are due next."""
        due_ns = self._database.run_clock.now_ns() + round(again_in_seconds * 1e9)
        with self._database.database.transaction() as cursor:
            cursor.executemany(
                "UPDATE standing SET due_run_ns = ? WHERE destination = ? AND subject = ?",
                [(due_ns, self._destination, subject) for subject in subjects],
            )

    def _now(self, job: Job, context: Context) -> _Now:
        number, newest = self._outermost(job, "DESC") if self._is_state else (job.number, job.event)
        story = tell(newest, open_body(newest.body), context.host)
        standing = self._database.database.read(
            "SELECT alert FROM standing WHERE destination = ? AND subject = ?",
            (self._destination, job.event.subject),
        )
        if standing:
            began = _alert(standing[0][0])
            fresh = alert_of(story, story, context.explorer_url)
            if story.topic == "breaker" and story.is_firing and began.labels != fresh.labels:
                return _Now(fresh, story, number, over=began)
            return _Now(msgspec.structs.replace(began, annotations=fresh.annotations), story, number)
        first = story
        if story.topic == "window":
            _, opening = self._outermost(job, "ASC")
            first = tell(opening, open_body(opening.body), context.host)
        return _Now(alert_of(first, story, context.explorer_url), story, number)

    def _outermost(self, job: Job, order: str) -> tuple[int, HeldEvent]:
        """The subject's oldest (ASC) or newest (DESC) event that is held for this destination."""
        rows = self._database.database.read(
            f"SELECT d.number, {_EVENT} FROM deliveries d JOIN events e USING (number)"  # noqa: S608 - fixed texts
            f" WHERE d.destination = ? AND d.subject = ? ORDER BY d.number {order} LIMIT 1",
            (self._destination, job.event.subject),
        )
        if not rows:
            return job.number, job.event
        number, *event = rows[0]
        return int(number), HeldEvent(*event)  # type: ignore[arg-type]

    def _twin(self, mark: str, subject: str) -> Alert | None:
        rows = self._database.database.read(
            "SELECT alert FROM standing WHERE destination = ? AND fingerprint = ? AND subject != ? LIMIT 1",
            (self._destination, mark, subject),
        )
        return _alert(rows[0][0]) if rows else None

    def _encoded(
        self, event_id: str, alert: Alert, ended_at: str | None, context: Context, over: Alert | None = None
    ) -> Message:
        if not self._is_state:
            body = alertmanager_webhook.encode(alert, ended_at, over)
        elif ended_at is None:
            before = [] if over is None else [alertmanager.ended(over, alert.starts_at)]
            body = alertmanager.encode([*before, alertmanager.held_up(alert, context)])
        else:
            body = alertmanager.encode([alertmanager.ended(alert, ended_at)])
        return Message(event_id, self._content_type, body)


def _alert(stored: object) -> Alert:
    return msgspec.json.decode(bytes(stored), type=Alert)  # type: ignore[call-overload]


def _stand(cursor: Cursor, row: tuple[object, ...]) -> None:
    cursor.execute("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?, ?, ?)", row)


def _fall(cursor: Cursor, key: tuple[str, str]) -> None:
    cursor.execute("DELETE FROM standing WHERE destination = ? AND subject = ?", key)
