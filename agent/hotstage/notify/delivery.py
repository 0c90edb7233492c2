# SPDX-License-Identifier: Apache-2.0
"""Deliveries of one destination: in order per subject, at least once, retried, given up. Never in the agent's
process.

Each destination has a worker thread of its own, so that a slow or dead one delays nobody else.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from hotstage.clock import Clock
from hotstage.errors import StoreError
from hotstage.notify.alerts import Alerts
from hotstage.notify.attempt import Outcome, attempt, send, undecodable
from hotstage.notify.db import Job, NotifyDatabase
from hotstage.notify.destinations import Target
from hotstage.notify.durations import Durations
from hotstage.notify.formats import ALERTING
from hotstage.notify.formats.context import Context
from hotstage.notify.post import Poster
from hotstage.store.db import Cursor

log = logging.getLogger(__name__)

# × the base of 5 s: 5 s, 30 s, 2 min, 10 min, 30 min, 2 h, 6 h.
_GROWTH = (1, 6, 24, 120, 360, 1440, 4320)
_LOOK_SECONDS = 1.0
_REFUSED_WRITE_SECONDS = 1.0
_STUMBLE_SECONDS = 60.0
_TRIED_AGAIN_SHARE = 0.25
"""Of the time between two tellings, after one that failed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait after a failure, and when to stop trying."""

    base_seconds: float
    max_seconds: float
    give_up_after_seconds: float

    def delay_seconds(self, attempt: int, asked_seconds: float | None, draw: Callable[[], float]) -> float:
        """Before the next try after failure number `attempt` (0 = the first): full jitter, not below what was
        asked.

        `draw` gives a number from 0 to 1.
        """
        ceiling = min(self.max_seconds, self.base_seconds * _GROWTH[min(attempt, len(_GROWTH) - 1)])
        return max(ceiling * draw(), min(asked_seconds or 0.0, self.max_seconds))


class Worker:
    """Delivers to one target until stopped. `on_change` hears that counts have moved."""

    def __init__(
        self,
        target: Target,
        database: NotifyDatabase,
        poster: Poster,
        policy: RetryPolicy,
        clock: Clock,
        context: Context,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._database = database
        self._poster = poster
        self._policy = policy
        self._clock = clock
        self._context = replace(context, resend_seconds=target.resend_seconds)
        self._on_change = on_change
        self._alerts = Alerts(target.name, target.format, database) if target.format in ALERTING else None
        self.durations = Durations()
        self._paused_until_ns = 0
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hotstage-to-{target.name}", daemon=True)
        self._is_failing = False
        self._stumbles = 0

    @property
    def name(self) -> str:
        return self._thread.name

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something to deliver."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no further attempt."""
        self._stopping.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def deliver_next(self) -> bool:
        """One attempt at what is due; False if nothing is. Raises StoreError only from reading."""
        if self._clock.monotonic_ns() < self._paused_until_ns:
            return False
        now_ns = self._clock.wall_ns()
        job = self._database.next_due(self._target.name)
        if job is None:
            return self._tell_again(now_ns)
        outcome, note = self._attempt(job, replace(self._context, sent_ns=now_ns))
        self._look_at(outcome, job)
        # The receiver has it: it is not sent again because a full disk cannot note so.
        while not self._record(job, outcome, note):
            if self._stopping.wait(_REFUSED_WRITE_SECONDS):
                return False
        self._on_change()
        return True

    def _attempt(self, job: Job, context: Context) -> tuple[Outcome, Callable[[Cursor], None]]:
        if self._alerts is None:
            return attempt(self._target, job.event, self._poster, context), _nothing
        try:
            told = self._alerts.message(job, context)
        except msgspec.DecodeError as error:
            return undecodable(error), _nothing
        return send(self._target, told.message, self._poster, context.sent_ns), told.note

    def _tell_again(self, now_ns: int) -> bool:
        """Alerts that still fire, to a receiver that forgets them; False if none is due."""
        context = replace(self._context, sent_ns=now_ns)
        due = None if self._alerts is None else self._alerts.due(context)
        if self._alerts is None or due is None:
            return False
        message, subjects = due
        outcome = send(self._target, message, self._poster, now_ns)
        self._look_at(outcome, None)
        if outcome.kind == "disable":
            self._database.disable(self._target.name, outcome.error or "", self._clock.wall_ns())
            self._on_change()
        share = 1.0 if outcome.kind == "delivered" else _TRIED_AGAIN_SHARE
        self._alerts.told_again(subjects, context.resend_seconds * share)
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                if not self.deliver_next():
                    self._wake.wait(self._idle_seconds())
            except StoreError as error:
                if not self._stopping.is_set():
                    log.warning("%s", error.message, extra={"destination": self._target.name})
                self._stopping.wait(_REFUSED_WRITE_SECONDS)
            except Exception as error:
                self._stumbled(error)
                self._stopping.wait(min(_STUMBLE_SECONDS, float(1 << min(self._stumbles, 10))))
            else:
                self._stumbles = 0

    def _stumbled(self, error: Exception) -> None:
        """An error that nobody foresaw: logged once while it lasts, counted as a failure each time."""
        self._stumbles += 1
        told = f"internal: {type(error).__name__}"
        fields = {"destination": self._target.name}
        if self._stumbles == 1:
            log.error("destination fails, events wait: %s", told, exc_info=error, extra=fields)
        with contextlib.suppress(StoreError):
            self._database.failed(self._target.name, told, self._clock.wall_ns())
        self._on_change()

    def _idle_seconds(self) -> float:
        """Until the next retry is due; never long, because `webhook replay` writes from another process."""
        due_in = self._database.next_due_in(self._target.name)
        return _LOOK_SECONDS if due_in is None else min(_LOOK_SECONDS, max(0.005, due_in))

    def _record(self, job: Job, outcome: Outcome, note: Callable[[Cursor], None]) -> bool:
        now_ns = self._clock.wall_ns()
        error = outcome.error or ""
        try:
            match outcome.kind:
                case "delivered":
                    self._database.delivered(job, now_ns, note)
                case "dead":
                    self._database.dead(job, error, now_ns)
                case "disable":
                    self._database.disable(job.destination, error, now_ns)
                case "retry":
                    self._retry(job, outcome, now_ns)
        except StoreError as refusal:
            if self._stopping.is_set():
                return False
            log.warning("%s", refusal.message, extra={"destination": self._target.name})
            return False
        return True

    def _retry(self, job: Job, outcome: Outcome, now_ns: int) -> None:
        delay = self._policy.delay_seconds(job.attempts, outcome.wait_seconds, random.random)
        waited_ns = self._database.run_clock.now_ns() - job.since_run_ns
        if waited_ns / 1e9 + delay > self._policy.give_up_after_seconds:
            self._database.dead(job, f"given up: {outcome.error}", now_ns)
        else:
            self._database.retry(job, outcome.error or "", delay, now_ns)

    def _look_at(self, outcome: Outcome, job: Job | None) -> None:
        """Count it, heed a wish for a pause, and log once per change: when a destination starts to fail, and
        when it takes events again.
        """
        if outcome.seconds is not None:
            self.durations.add(outcome.seconds)
        if outcome.wait_seconds is not None:
            # It is the receiver that wants a rest, not the one event.
            pause_ns = round(min(outcome.wait_seconds, self._policy.max_seconds) * 1e9)
            self._paused_until_ns = self._clock.monotonic_ns() + pause_ns
        fields: dict[str, object] = {"destination": self._target.name}
        if job is not None:
            fields |= {"event_id": job.event.id, "attempt": job.attempts + 1}
        if outcome.kind in ("dead", "disable"):
            log.error("event not delivered: %s", outcome.error, extra=fields)
        elif outcome.kind == "retry" and not self._is_failing:
            log.warning("destination fails, events wait: %s", outcome.error, extra=fields)
        elif outcome.kind == "delivered" and self._is_failing:
            log.info("destination takes events again", extra=fields)
        self._is_failing = outcome.kind == "retry"


def _nothing(cursor: Cursor) -> None:
    """What most deliveries have to note: nothing."""
