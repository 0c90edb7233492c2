# SPDX-License-Identifier: Apache-2.0
"""How much more is asked of the host than usual: more load slows every stage somewhat, and that is no fault.

Only arrivals count. Requests in flight would grow with a fault too, and so excuse it.
"""

from __future__ import annotations

import math
from collections import deque

from hotstage.stages.pulse import Pulse

_WINDOW_NS = 10_000_000_000
_USUAL_SECONDS = 120.0
_MIN_STARTED = 10
_PER_DOUBLING = 0.4
_FREE = 0.1
_SLACK_MAX = 0.6


class Demand:
    """Observe every pulse; `slack` is read after it. Not thread-safe."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int]] = deque()
        self._started = 0
        self._first_ns: int | None = None
        self._usual_rate = 0.0
        self.slack = 0.0
        """log2 of the slow-down that the present load excuses, 0 to 0.6."""

    def observe(self, pulse: Pulse) -> None:
        """Rate of the last 10 s against a slow mean of it (2 minutes)."""
        if self._first_ns is None:
            self._first_ns = pulse.at_ns
        self._recent.append((pulse.at_ns, pulse.requests_started))
        self._started += pulse.requests_started
        while self._recent and pulse.at_ns - self._recent[0][0] > _WINDOW_NS:
            self._started -= self._recent.popleft()[1]
        elapsed = (pulse.at_ns - self._first_ns) / 1e9
        if elapsed <= 1.0:
            return
        rate = self._started / min(elapsed, _WINDOW_NS / 1e9)
        weight = min(pulse.interval_ns / 1e9 / min(elapsed, _USUAL_SECONDS), 1.0)
        self._usual_rate += weight * (rate - self._usual_rate)
        if self._started < _MIN_STARTED or self._usual_rate <= 0:
            self.slack = 0.0
            return
        excess = _PER_DOUBLING * math.log2(max(rate / self._usual_rate, 1.0))
        self.slack = min(max(excess - _FREE, 0.0), _SLACK_MAX)
