# SPDX-License-Identifier: Apache-2.0
"""Look-ups that may hang (a dead NFS server, a hostile FUSE mount), each with a deadline, on threads of
their own.

A look-up past its deadline is abandoned: its thread is left behind until the kernel lets go of it, its
place (the file system it hangs on) is refused meanwhile, and it is counted. Users take turns (`turns.py`).
Knows nothing of processes or libraries.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from hotstage.probes.discovery.turns import WAITING_LIMIT, Turns

STUCK_LIMIT = 16
"""Abandoned threads that may exist at a time; past that, nothing new is looked up until one comes back."""
_WORKERS = 4
_HELD_BACK_SECONDS = 0.1
"""Between two looks at whether a user whose look-ups wait has paid back enough."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one look-up ended: `error` is None when `result` holds; a TimeoutError when it was abandoned or
    refused.
    """

    key: Hashable
    result: Any
    error: Exception | None


@dataclass(slots=True, eq=False)
class _Job:
    key: Hashable
    place: Hashable
    work: Callable[[], Any]
    discard: Callable[[Any], None]
    user: int | None
    started_ns: int = 0
    is_abandoned: bool = False


class Lookups:
    """Runs look-ups beside the caller. One caller thread; results come back through `finished`.

    `wake_fd` becomes readable when a result is there. `now_ns` is CLOCK_MONOTONIC.
    """

    def __init__(self, deadline_seconds: float, now_ns: Callable[[], int]) -> None:
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.abandoned_total = 0
        self._deadline_ns = int(deadline_seconds * 1e9)
        self._now_ns = now_ns
        self._lock = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._turns = Turns(now_ns)
        self._done: deque[tuple[Outcome, _Job]] = deque()
        self._running: list[_Job] = []
        self._stuck_places: list[Hashable] = []
        self._pending = 0
        self._is_closed = False
        self.refused_threads = 0
        """How often no worker could be started: the process may have no more threads now."""
        self._missing = _WORKERS
        self._start_missing()

    @property
    def pending(self) -> int:
        """Look-ups handed in and not yet reported by `finished`."""
        return self._pending

    @property
    def stuck(self) -> int:
        """Threads that hang in a look-up right now."""
        with self._lock:
            return len(self._stuck_places)

    @property
    def held_back(self) -> int:
        """Look-ups that wait right now because their user's have taken too much of a processor."""
        with self._lock:
            return sum(self._turns.is_held_back(job.user) for job in self._waiting)

    def submit(
        self,
        key: Hashable,
        place: Hashable,
        work: Callable[[], Any],
        discard: Callable[[Any], None] = lambda _: None,
        *,
        user: int | None = None,
    ) -> None:
        """Run `work`; its outcome carries `key`. At one `place` one look-up runs at a time: if it hangs, the
        others there are refused, and all other places have their workers. `user` is who has it done.

        A result that nobody will fetch any more (abandoned, closed) goes to `discard`, which frees what it
        holds.
        """
        self._pending += 1
        job = _Job(key, place, work, discard, user)
        with self._lock:
            if not self._turns.queued(user):
                reason = f"{WAITING_LIMIT} look-ups of user {user} wait already"
                self._report(Outcome(key, None, TimeoutError(reason)), job)
                return
            self._waiting.append(job)
            self._lock.notify()

    def wake(self) -> None:
        """Make `wake_fd` readable, as if a result were there."""
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(self.wake_fd, 1)

    def finished(self) -> list[Outcome]:
        """Outcomes since the last call, look-ups past their deadline among them."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)
        self._abandon_late()
        with self._lock:
            outcomes = [outcome for outcome, _ in self._done]
            self._done.clear()
        self._pending -= len(outcomes)
        return outcomes

    def close(self) -> None:
        """Let the idle workers go; one that hangs is a daemon thread and dies with the process."""
        with self._lock:
            self._is_closed = True
            os.close(self.wake_fd)
            self._lock.notify_all()
            unfetched = list(self._done)
        for outcome, job in unfetched:
            _discard(outcome, job)

    def _start_missing(self) -> None:
        """Start the workers that there should be; one that cannot be is tried again when time has passed."""
        while self._missing:
            try:
                threading.Thread(target=self._work, name="hotstage-lookup", daemon=True).start()
            except RuntimeError as error:
                if not self.refused_threads:
                    log.warning("a look-up has no thread, it waits: %s", error)
                self.refused_threads += 1
                return
            self._missing -= 1

    def _work(self) -> None:
        while job := self._next_job():
            began = time.thread_time_ns()
            outcome = _run(job)
            with self._lock:
                self._turns.charge(job.user, time.thread_time_ns() - began)
                is_wanted = not job.is_abandoned and not self._is_closed
                if job.is_abandoned:
                    self._stuck_places.remove(job.place)
                else:
                    self._running.remove(job)
                if is_wanted:
                    self._report(outcome, job)
                if self._waiting:
                    self._lock.notify_all()  # one of them may have waited for this place
            if not is_wanted:
                _discard(outcome, job)
            if job.is_abandoned:
                return  # another worker took this one's place

    def _next_job(self) -> _Job | None:
        """The job at a place where nothing runs whose user owes the least, the first of several; jobs at a
        place that hangs end here. None when closed.
        """
        with self._lock:
            while not self._is_closed:
                self._refuse_stuck()
                busy = {job.place for job in self._running}
                free = [job for job in self._waiting if job.place not in busy]
                due = [job for job in free if not self._turns.is_held_back(job.user)]
                if due:
                    job = min(due, key=lambda each: self._turns.debt_ns(each.user))
                    self._take_out(job)
                    self._running.append(job)
                    job.started_ns = self._now_ns()
                    return job
                self._lock.wait(_HELD_BACK_SECONDS if free else None)
        return None

    def _take_out(self, job: _Job) -> None:
        self._waiting.remove(job)
        self._turns.taken(job.user)

    def _refuse_stuck(self) -> None:
        if not self._stuck_places:
            return
        is_full = len(self._stuck_places) >= STUCK_LIMIT
        for job in [job for job in self._waiting if is_full or job.place in self._stuck_places]:
            self._take_out(job)
            self._report(Outcome(job.key, None, TimeoutError("an earlier look-up still hangs there")), job)

    def _report(self, outcome: Outcome, job: _Job) -> None:
        self._done.append((outcome, job))
        os.eventfd_write(self.wake_fd, 1)

    def _abandon_late(self) -> None:
        with self._lock:
            late = [job for job in self._running if self._now_ns() - job.started_ns > self._deadline_ns]
            for job in late:
                job.is_abandoned = True
                self._running.remove(job)
                self._stuck_places.append(job.place)
                reason = f"no answer within {self._deadline_ns / 1e9:g} s"
                self._done.append((Outcome(job.key, None, TimeoutError(reason)), job))
            self.abandoned_total += len(late)
            if late:
                self._lock.notify_all()
        self._missing += len(late)
        self._start_missing()


def _discard(outcome: Outcome, job: _Job) -> None:
    if outcome.error is None:
        job.discard(outcome.result)


def _run(job: _Job) -> Outcome:
    try:
        return Outcome(job.key, job.work(), None)
    except Exception as error:  # whatever a look-up raises belongs to its own target, never to the others
        return Outcome(job.key, None, error)
