# SPDX-License-Identifier: Apache-2.0
"""Deliveries of one destination: in order per subject, at least once, retried, given up. Never in the agent's
process.

Each destination has a worker thread of its own, so that a slow or dead one delays nobody else.
"""

from __future__ import annotations

import http.client
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from hotstage.clock import Clock
from hotstage.errors import StoreError
from hotstage.notify import formats, signing
from hotstage.notify.db import HeldEvent, Job, NotifyDatabase
from hotstage.notify.destinations import RefusedAddressError, Target
from hotstage.notify.post import Poster

log = logging.getLogger(__name__)

# × the base of 5 s: 5 s, 30 s, 2 min, 10 min, 30 min, 2 h, 6 h.
_GROWTH = (1, 6, 24, 120, 360, 1440, 4320)
_RETRIED = frozenset({408, 409, 425, 429})
_LOOK_SECONDS = 1.0
_REFUSED_WRITE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt led to. `wait_seconds` is what the receiver asked for."""

    kind: Literal["delivered", "retry", "dead", "disable"]
    error: str | None = None
    wait_seconds: float | None = None


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


def judge(status: int, retry_after_seconds: float | None) -> Outcome:
    """What an answer means. A redirect is not followed: the operator's URL is the only place events go to."""
    if 200 <= status < 300:
        return Outcome("delivered")
    error = f"answered {status}"
    if status == 410:
        return Outcome("disable", "answered 410, it wants no more")
    if 300 <= status < 400:
        return Outcome("retry", f"{error}, redirects are not followed")
    if 400 <= status < 500 and status not in _RETRIED:
        return Outcome("dead", error)
    return Outcome("retry", error, retry_after_seconds if status in (429, 503) else None)


def attempt(target: Target, event: HeldEvent, poster: Poster, now_wall_ns: int) -> Outcome:
    """One try. It never raises: one event that we fail on must not end a destination's worker."""
    try:
        content_type, body = formats.render(target.format, event)
    except msgspec.DecodeError as error:
        return Outcome("dead", f"its body is not an event: {error}")
    signed = signing.headers(target.secrets, event.id, now_wall_ns // 1_000_000_000, body)
    try:
        reply = poster.post(target, {"Content-Type": content_type, **signed}, body)
    except (OSError, http.client.HTTPException, RefusedAddressError) as error:
        return Outcome("retry", f"{type(error).__name__}: {error}"[:300])
    except Exception as error:
        log.exception("an attempt failed", extra={"destination": target.name, "event_id": event.id})
        return Outcome("retry", f"internal: {type(error).__name__}")
    return judge(reply.status, reply.retry_after_seconds)


class Worker:
    """Delivers to one target until stopped. `on_change` hears that counts have moved."""

    def __init__(
        self,
        target: Target,
        database: NotifyDatabase,
        poster: Poster,
        policy: RetryPolicy,
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._database = database
        self._poster = poster
        self._policy = policy
        self._clock = clock
        self._on_change = on_change
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hotstage-to-{target.name}", daemon=True)
        self._is_failing = False

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
        job = self._database.next_due(self._target.name, self._clock.wall_ns())
        if job is None:
            return False
        outcome = attempt(self._target, job.event, self._poster, self._clock.wall_ns())
        self._log(job, outcome)
        # The receiver has it: it is not sent again because a full disk cannot note so.
        while not self._record(job, outcome):
            if self._stopping.wait(_REFUSED_WRITE_SECONDS):
                return False
        self._on_change()
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                if not self.deliver_next():
                    self._wake.wait(self._idle_seconds())
            except StoreError as error:
                log.warning("%s", error.message, extra={"destination": self._target.name})
                self._stopping.wait(_REFUSED_WRITE_SECONDS)

    def _idle_seconds(self) -> float:
        """Until the next retry is due; never long, because `webhook replay` writes from another process."""
        due_ns = self._database.next_due_at(self._target.name)
        if due_ns is None:
            return _LOOK_SECONDS
        return min(_LOOK_SECONDS, max(0.005, (due_ns - self._clock.wall_ns()) / 1e9))

    def _record(self, job: Job, outcome: Outcome) -> bool:
        now_ns = self._clock.wall_ns()
        error = outcome.error or ""
        try:
            match outcome.kind:
                case "delivered":
                    self._database.delivered(job, now_ns)
                case "dead":
                    self._database.dead(job, error, now_ns)
                case "disable":
                    self._database.disable(job.destination, error, now_ns)
                case "retry":
                    self._retry(job, outcome, now_ns)
        except StoreError as refusal:
            log.warning("%s", refusal.message, extra={"destination": self._target.name})
            return False
        return True

    def _retry(self, job: Job, outcome: Outcome, now_ns: int) -> None:
        delay = self._policy.delay_seconds(job.attempts, outcome.wait_seconds, random.random)
        due_ns = now_ns + round(delay * 1e9)
        if due_ns - job.since_wall_ns > self._policy.give_up_after_seconds * 1e9:
            self._database.dead(job, f"given up: {outcome.error}", now_ns)
        else:
            self._database.retry(job, outcome.error or "", due_ns)

    def _log(self, job: Job, outcome: Outcome) -> None:
        """Once per change: when a destination starts to fail, and when it takes events again."""
        fields = {"destination": self._target.name, "event_id": job.event.id, "attempt": job.attempts + 1}
        if outcome.kind in ("dead", "disable"):
            log.error("event not delivered: %s", outcome.error, extra=fields)
        elif outcome.kind == "retry" and not self._is_failing:
            log.warning("destination fails, events wait: %s", outcome.error, extra=fields)
        elif outcome.kind == "delivered" and self._is_failing:
            log.info("destination takes events again", extra=fields)
        self._is_failing = outcome.kind == "retry"
