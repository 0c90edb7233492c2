# SPDX-License-Identifier: Apache-2.0
"""What the tick leaves for the exporter's thread: a bounded queue, and counts of what became of the spans.

Neither side ever waits for the other longer than for one assignment.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

import numpy as np

from hotstage.sinks.self_facts import OtlpState
from hotstage.stages.pulse import Rows
from hotstage.windows.window import AnomalyWindow

REQUESTS_HELD = 4096
"""1,560 bytes each; five seconds of 800 requests/s."""

QUEUE_FULL = "queue_full"
PARENT_NOT_SAMPLED = "parent_not_sampled"
NOT_SAMPLED = "not_sampled"
RATE_LIMIT = "rate_limit"
EXPORT_FAILED = "export_failed"
REJECTED = "rejected"
REASONS = (QUEUE_FULL, PARENT_NOT_SAMPLED, NOT_SAMPLED, RATE_LIMIT, EXPORT_FAILED, REJECTED)


@dataclass(frozen=True, slots=True)
class Note:
    """One tick in which something happened. `at_ns` is CLOCK_MONOTONIC."""

    at_ns: int
    wall_offset_ns: int
    finished: Rows
    """FINISHED_DTYPE, the note's own."""
    gpu_of_pid: Mapping[int, str]
    opened: tuple[AnomalyWindow, ...]
    closed: tuple[AnomalyWindow, ...]
    open: tuple[AnomalyWindow, ...]


class Notes:
    """The queue. `put` is the tick's; `take` and `settle` are the exporter's."""

    def __init__(self, limit: int = REQUESTS_HELD) -> None:
        self._limit = limit
        self._lock = Lock()
        self._queue: deque[Note] = deque()
        self._held = 0

    def room(self) -> int:
        """How many requests more there is room for; the exporter makes more, nobody but the tick takes it."""
        with self._lock:
            return self._limit - self._held if len(self._queue) < self._limit else 0

    def put(self, note: Note) -> bool:
        """False: there is no room for its requests until the exporter has settled some."""
        with self._lock:
            if self._held + len(note.finished) > self._limit or len(self._queue) >= self._limit:
                return False
            self._held += len(note.finished)
            self._queue.append(note)
            return True

    def take(self) -> list[Note]:
        """All notes so far, oldest first; their requests count as held until they are settled."""
        with self._lock:
            notes = list(self._queue)
            self._queue.clear()
            return notes

    def settle(self, requests: int) -> None:
        """So many requests were exported or dropped."""
        with self._lock:
            self._held -= requests


class Outcome:
    """Counts of spans, events and failed exports since the start. Thread-safe."""

    def __init__(self, signals: Iterable[str] = ()) -> None:
        self._lock = Lock()
        self._exported = 0
        self._dropped: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._events_dropped = 0
        self._failures: Counter[str] = Counter(dict.fromkeys(signals, 0))

    def exported(self, spans: int) -> None:
        with self._lock:
            self._exported += spans

    def dropped(self, reason: str, spans: int) -> None:
        with self._lock:
            self._dropped[reason] += spans

    def events_dropped(self, events: int) -> None:
        with self._lock:
            self._events_dropped += events

    def failed(self, signal: str, exports: int = 1) -> None:
        with self._lock:
            self._failures[signal] += exports

    def state(self) -> OtlpState:
        with self._lock:
            return OtlpState(self._exported, dict(self._dropped), self._events_dropped, dict(self._failures))


def spans_of(finished: Rows) -> int:
    """Spans that the requests would make: one each, and one a stage that ended."""
    return len(finished) + int(np.count_nonzero(finished["stages"]["count"]))
