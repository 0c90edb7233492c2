# SPDX-License-Identifier: Apache-2.0
"""How long attempts at one destination take, counted in the buckets that the agent's metrics have."""

from __future__ import annotations

import threading
from bisect import bisect_left

from hotstage.store.deliveries import DURATION_EDGES


class Durations:
    """Counted since this process began; any thread may add and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(DURATION_EDGES) + 1)
        self._sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """One attempt; a bucket holds what is at most its edge."""
        with self._lock:
            self._counts[bisect_left(DURATION_EDGES, seconds)] += 1
            self._sum_seconds += seconds

    def total(self) -> tuple[tuple[int, ...], float]:
        """(attempts per bucket, the last beyond all edges; their seconds together)."""
        with self._lock:
            return tuple(self._counts), self._sum_seconds
