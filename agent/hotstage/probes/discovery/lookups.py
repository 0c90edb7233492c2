# SPDX-License-Identifier: Apache-2.0
"""Look-ups that may hang (a dead NFS server, a hostile FUSE mount), each with a deadline, on threads of
their own.

A look-up past its deadline is abandoned: its thread is left behind until the kernel lets go of it, its
place (the file system it hangs on) is refused meanwhile, and it is counted. Knows nothing of processes or
libraries.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

STUCK_LIMIT = 16
"""Abandoned threads that may exist at a time; past that, nothing new is looked up until one comes back."""
_WORKERS = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one look-up ended: `error` is None when `result` holds; a TimeoutError when it was abandoned or
    refused.
    """

    key: Hashable
    result: Any
    error: Exception | None


@dataclass(slots=True)
class _Job:
    key: Hashable
    place: Hashable
    work: Callable[[], Any]
    discard: Callable[[Any], None]
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
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: list[_Job] = []
        self._stuck_places: list[Hashable] = []
        self._pending = 0
        self._is_closed = False
        for _ in range(_WORKERS):
            self._start_worker()

    @property
    def pending(self) -> int:
        """Look-ups handed in and not yet reported by `finished`."""
        return self._pending

    @property
    def stuck(self) -> int:
        """Threads that hang in a look-up right now."""
        with self._lock:
            return len(self._stuck_places)

    def submit(
        self,
        key: Hashable,
        place: Hashable,
        work: Callable[[], Any],
        discard: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """Run `work`; its outcome carries `key`. A `place` that something hangs on is refused.

        A result that nobody will fetch any more (abandoned, closed) goes to `discard`, which frees what it
        holds.
        """
        self._pending += 1
        self._waiting.put(_Job(key, place, work, discard))

    def finished(self) -> list[Outcome]:
        """Outcomes since the last call, look-ups past their deadline among them."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)
        self._abandon_late()
        outcomes: list[Outcome] = []
        while not self._done.empty():
            outcomes.append(self._done.get_nowait())
        self._pending -= len(outcomes)
        return outcomes

    def close(self) -> None:
        """Let the idle workers go; one that hangs is a daemon thread and dies with the process."""
        with self._lock:
            self._is_closed = True
            os.close(self.wake_fd)
        for _ in range(_WORKERS):
            self._waiting.put(None)

    def _start_worker(self) -> None:
        threading.Thread(target=self._work, name="hotstage-lookup", daemon=True).start()

    def _work(self) -> None:
        while job := self._waiting.get():
            with self._lock:
                is_refused = job.place in self._stuck_places or len(self._stuck_places) >= STUCK_LIMIT
                if not is_refused:
                    job.started_ns = self._now_ns()
                    self._running.append(job)
            if is_refused:
                self._report(
                    Outcome(job.key, None, TimeoutError("an earlier look-up still hangs there")), job
                )
                continue
            outcome = _run(job)
            with self._lock:
                if job.is_abandoned:
                    self._stuck_places.remove(job.place)
                else:
                    self._running.remove(job)
            if job.is_abandoned:
                if outcome.error is None:
                    job.discard(outcome.result)
                return  # another worker took this one's place
            self._report(outcome, job)

    def _report(self, outcome: Outcome, job: _Job) -> None:
        with self._lock:
            if not self._is_closed:
                self._done.put(outcome)
                os.eventfd_write(self.wake_fd, 1)
                return
        if outcome.error is None:
            job.discard(outcome.result)

    def _abandon_late(self) -> None:
        with self._lock:
            late = [job for job in self._running if self._now_ns() - job.started_ns > self._deadline_ns]
            for job in late:
                job.is_abandoned = True
                self._running.remove(job)
                self._stuck_places.append(job.place)
        for job in late:
            self.abandoned_total += 1
            self._start_worker()
            seconds = self._deadline_ns / 1e9
            self._done.put(Outcome(job.key, None, TimeoutError(f"no answer within {seconds:g} s")))


def _run(job: _Job) -> Outcome:
    try:
        return Outcome(job.key, job.work(), None)
    except Exception as error:  # whatever a look-up raises belongs to its own target, never to the others
        return Outcome(job.key, None, error)
