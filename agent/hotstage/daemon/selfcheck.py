# SPDX-License-Identifier: Apache-2.0
"""What the agent says of itself: tick times, CPU, memory, and whether it is well. It changes nothing."""

from __future__ import annotations

import os
import resource
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotstage.clock import Clock
from hotstage.daemon.failures import TickFailures

_TICKS_KEPT = 600
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = resource.getpagesize()

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SelfSample:
    """`cpu_ratio`, of one core, and `cpu_seconds` are since the start; tick times are over the last ten
    minutes at most.
    """

    cpu_ratio: float | None
    cpu_seconds: float
    rss_bytes: int
    map_bytes: int
    start_to_attached_seconds: float | None
    fast_tick_p99_seconds: float | None
    slow_tick_p99_seconds: float | None
    decision_to_page_p99_seconds: float | None
    """From a breaker's move, all moves of a tick together, to the page."""
    fast_ticks: int
    slow_ticks: int
    early_ticks: int
    late_ticks: int

    def document(self) -> Document:
        return {name: getattr(self, name) for name in self.__slots__}


class SelfMeter:
    """Times the ticks. Written by the tick thread; `sample` may be called from any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = clock.monotonic_ns()
        self._cpu_at_start = _cpu_seconds()
        self._fast: deque[float] = deque(maxlen=_TICKS_KEPT)
        self._slow: deque[float] = deque(maxlen=_TICKS_KEPT)
        self._paged: deque[float] = deque(maxlen=_TICKS_KEPT)
        self.fast_ticks = 0
        self.slow_ticks = 0
        self.early_ticks = 0
        self.late_ticks = 0
        self.failures = TickFailures(clock)
        self.last_tick_ns: int | None = None
        self.map_bytes = 0
        self.start_to_attached_seconds: float | None = None
        self.last_reload_successful = True
        """Whether the configuration was taken when it was last read, at the start or on SIGHUP."""

    def took(self, began_ns: int, *, is_slow: bool, is_early: bool = False) -> None:
        """One tick that began then has just ended; one that came early is timed, and counted apart."""
        self.last_tick_ns = self._clock.monotonic_ns()
        seconds = (self.last_tick_ns - began_ns) / 1e9
        if is_slow:
            self.slow_ticks += 1
            self._slow.append(seconds)
        else:
            self.fast_ticks += not is_early
            self.early_ticks += is_early
            self._fast.append(seconds)

    def paged(self, decided_ns: int) -> None:
        """What was decided then, a breaker's move, is on the page now."""
        self._paged.append((self._clock.monotonic_ns() - decided_ns) / 1e9)

    def sample(self) -> SelfSample:
        elapsed = (self._clock.monotonic_ns() - self._began_ns) / 1e9
        used = _cpu_seconds() - self._cpu_at_start
        return SelfSample(
            cpu_ratio=used / elapsed if elapsed > 0 else None,
            cpu_seconds=used,
            rss_bytes=int(_STATM.read_text().split()[1]) * _PAGE_BYTES,
            map_bytes=self.map_bytes,
            start_to_attached_seconds=self.start_to_attached_seconds,
            fast_tick_p99_seconds=_p99(self._fast),
            slow_tick_p99_seconds=_p99(self._slow),
            decision_to_page_p99_seconds=_p99(self._paged),
            fast_ticks=self.fast_ticks,
            slow_ticks=self.slow_ticks,
            early_ticks=self.early_ticks,
            late_ticks=self.late_ticks,
        )


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _p99(values: deque[float]) -> float | None:
    """Nearest rank; None while nothing was timed."""
    ordered = sorted(values.copy())
    return ordered[-(-99 * len(ordered) // 100) - 1] if ordered else None
