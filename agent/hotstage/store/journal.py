# SPDX-License-Identifier: Apache-2.0
"""What waits to be written, in order, while the disk is slow, full or read-only. The tick never waits for it.

A thread of its own commits: events at once, mere states (an open window's score) within a second and only the
last of each. A refused write stays first in line and is tried again. The line is bounded: when it is full,
states that a later one replaces go first, then the oldest change, and every one lost is counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from hotstage.errors import StoreError
from hotstage.store.db import RejectedChangeError
from hotstage.store.store import Changes, Store

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
STATE_SECONDS = 1.0
_BATCH = 64


@dataclass(frozen=True, slots=True)
class JournalState:
    """For health and metrics. `oldest_ns` is CLOCK_MONOTONIC; `error` is the last refusal while it lasts."""

    pending: int
    oldest_ns: int | None
    committed_total: int
    lost_total: int
    error: str | None


class Journal:
    """`submit` from the tick, `start` a thread that commits, or `flush` by hand.

    `on_commit` hears what is safe.
    """

    def __init__(
        self, store: Store, pending_max: int, on_commit: Callable[[list[Changes]], None] = lambda _: None
    ) -> None:
        self._store = store
        self._pending_max = pending_max
        self._on_commit = on_commit
        self._line: deque[Changes] = deque()
        self._being_written = 0
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._has_work = threading.Event()
        self._urgent = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._committed_total = 0
        self._lost_total = 0
        self._error: str | None = None

    def submit(self, changes: Changes) -> None:
        """Put it in line; returns at once."""
        if not changes:
            return
        with self._lock:
            last = self._line[-1] if len(self._line) > self._being_written else None
            if last is not None and _is_state(last) and _is_state(changes):
                self._line[-1] = _newest(last, changes)
            else:
                self._line.append(changes)
            if len(self._line) > self._pending_max:
                self._make_room()
        self._has_work.set()
        if not _is_state(changes):
            self._urgent.set()

    def flush(self) -> None:
        """Write everything in line.

        Raises StoreError at the first refusal; what was not written stays in line.
        """
        with self._flushing:
            size = _BATCH
            while batch := self._head(size):
                try:
                    self._store.commit(batch)
                except StoreError as error:
                    self._refused(error)
                    raise
                except RejectedChangeError:
                    if len(batch) == 1:
                        log.exception("a change cannot be written and is dropped")
                        self._written(batch, is_lost=True)
                    # One by one, to find which of them it is.
                    size = 1
                else:
                    self._written(batch)
                    self._on_commit(batch)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="hotstage-journal", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread that commits runs."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, deadline_seconds: float) -> int:
        """Write what is left, within the deadline; how many changes stay unwritten."""
        self._stopping.set()
        self._has_work.set()
        self._urgent.set()
        if self._thread is not None:
            self._thread.join(deadline_seconds)
        return self.state().pending

    def state(self) -> JournalState:
        with self._lock:
            oldest_ns = self._line[0].at_ns if self._line else None
            return JournalState(
                len(self._line), oldest_ns, self._committed_total, self._lost_total, self._error
            )

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            self._urgent.wait(STATE_SECONDS)
            self._has_work.clear()
            self._urgent.clear()
            try:
                self.flush()
            except StoreError:
                if self._stopping.wait(RETRY_SECONDS):
                    return
                self._has_work.set()
                self._urgent.set()
            if self._stopping.is_set() and not self.state().pending:
                return

    def _head(self, size: int) -> list[Changes]:
        with self._lock:
            self._being_written = min(size, len(self._line))
            return [self._line[index] for index in range(self._being_written)]

    def _written(self, batch: list[Changes], *, is_lost: bool = False) -> None:
        with self._lock:
            for _ in batch:
                self._line.popleft()
            self._being_written = 0
            if is_lost:
                self._lost_total += len(batch)
            else:
                self._committed_total += len(batch)
            recovered, self._error = self._error, None
        if recovered:
            log.info("the store accepts writes again")

    def _refused(self, error: StoreError) -> None:
        with self._lock:
            self._being_written = 0
            first, self._error = self._error is None, error.message
        if first:
            log.warning("%s; changes are kept and tried again", error.message, extra={"remedy": error.remedy})

    def _make_room(self) -> None:
        """Drop one change; never one that is being written. A state is told again, an event is not."""
        candidates = range(self._being_written, len(self._line))
        tells_nothing_new = (
            i for i in candidates if not self._line[i].events and not self._line[i].transitions
        )
        del self._line[next(tells_nothing_new, self._being_written)]
        self._lost_total += 1


def _is_state(changes: Changes) -> bool:
    """Whether it only says how things are, so that a later one may stand for it."""
    return not (changes.events or changes.transitions or changes.switches)


def _newest(earlier: Changes, later: Changes) -> Changes:
    """Both states in one: the last word on each window and breaker."""
    return replace(
        later,
        windows=tuple({window.id: window for window in (*earlier.windows, *later.windows)}.values()),
        breakers=tuple({record.name: record for record in (*earlier.breakers, *later.breakers)}.values()),
    )
