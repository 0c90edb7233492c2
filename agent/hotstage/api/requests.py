# SPDX-License-Identifier: Apache-2.0
"""The last finished requests with the time each stage took, for `/v1/requests`. Bounded.

One writer, the tick; readers take a snapshot of the deque's blocks, which are never changed.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.clock import Clock, rfc3339
from hotstage.stages.snapshot import stage_rows
from hotstage.text import clean_name

Document = dict[str, Any]

OUTCOMES = ("ok", "error", "cancelled", "refused")
_REFUSED = OUTCOMES.index("refused")


class RequestLog:
    """Finished requests, numbered from 1; the oldest go when `capacity` is exceeded."""

    def __init__(self, clock: Clock, capacity: int = 4000) -> None:
        self._clock = clock
        self._capacity = capacity
        self._lock = Lock()
        self._blocks: deque[tuple[int, NDArray[np.void]]] = deque()
        self._held = 0
        self._finished = 0
        self._refused = 0
        self._open = 0

    def add(self, finished: NDArray[np.void], open_requests: int) -> None:
        """Rows of FINISHED_DTYPE that ended since the last call, and how many are in flight now."""
        with self._lock:
            self._open = open_requests
            if not len(finished):
                return
            self._blocks.append((self._finished + 1, finished.copy()))
            self._finished += len(finished)
            self._refused += int(np.count_nonzero(finished["outcome"] == _REFUSED))
            self._held += len(finished)
            while self._held - len(self._blocks[0][1]) >= self._capacity:
                self._held -= len(self._blocks.popleft()[1])

    def document(self, after: int, limit: int) -> Document:
        """Up to `limit` requests with a number above `after`, oldest first; `next` is where to go on."""
        with self._lock:
            blocks, totals = tuple(self._blocks), self._totals()
        rows: list[Document] = []
        for first, block in blocks:
            start = max(0, after + 1 - first)
            rows += [self._row(first + at, block[at]) for at in range(start, len(block))[: limit - len(rows)]]
        return {"requests": rows, "next": rows[-1]["seq"] if rows else after, "totals": totals}

    def _totals(self) -> Document:
        return {
            "started": self._finished + self._open,
            "finished": self._finished - self._refused,
            "open": self._open,
            "refused": self._refused,
        }

    def _row(self, seq: int, row: np.void) -> Document:
        started_ns, ended_ns = int(row["started_ns"]), int(row["ended_ns"])
        at_ns = self._clock.wall_ns_of(ended_ns)
        outcome = int(row["outcome"])
        return {
            "seq": seq,
            "id": clean_name(row["id"]),
            "endpoint": clean_name(row["endpoint"]),
            "instance": clean_name(row["instance"]),
            "model": clean_name(row["model"]),
            "pid": int(row["tgid"]),
            "traceparent": clean_name(row["traceparent"]) or None,
            "input_digest": f"{int(row['input_digest']):016x}" if row["input_digest"] else None,
            "outcome": OUTCOMES[outcome] if outcome < len(OUTCOMES) else "unknown",
            "ended_at": rfc3339(at_ns),
            "ended_at_ns": at_ns,
            "duration_seconds": (ended_ns - started_ns) / 1e9,
            "output_tokens": int(row["output_tokens"]),
            "launches": int(row["launches"]),
            "errors": int(row["errors"]),
            "stages": stage_rows(row),
        }
