# SPDX-License-Identifier: Apache-2.0
"""Ticks that failed: counted, told once a minute by kind, and since when none has come through."""

from __future__ import annotations

import logging
from collections import Counter

from hotstage.clock import Clock
from hotstage.errors import HotstageError

log = logging.getLogger(__name__)

FAILING_SECONDS = 2.0
"""So long may ticks fail one after another; then the agent is not alive: its service manager restarts it."""

_TELL_AGAIN_NS = 60_000_000_000
_KINDS_MAX = 64
_Kind = tuple[str, str, int]


class TickFailures:
    """`failed` and `came_through` from the tick's thread; the rest from any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[_Kind, int] = {}
        self._untold: Counter[_Kind] = Counter()
        self._since: dict[bool, int] = {}
        """By whether it was a tick that ends a second: those between it and the next say nothing of it."""
        self.total = 0

    def failed(self, error: Exception, *, is_slow: bool) -> None:
        """What the tick had read is lost; the next one goes on."""
        now_ns = self._clock.monotonic_ns()
        self.total += 1
        self._since.setdefault(is_slow, now_ns)
        kind = _kind(error)
        told_ns = self._told.get(kind)
        if told_ns is not None and now_ns - told_ns < _TELL_AGAIN_NS:
            self._untold[kind] += 1
            return
        if len(self._told) >= _KINDS_MAX:
            self._told.clear()
            self._untold.clear()
        self._told[kind] = now_ns
        before = {"untold_before": self._untold.pop(kind, 0)}
        if isinstance(error, HotstageError):
            log.error("a tick failed: %s", error.message, extra={"remedy": error.remedy, **before})
        else:
            log.error("a tick failed, please report it", exc_info=error, extra=before)

    def came_through(self, *, is_slow: bool) -> None:
        """A tick came to its end; one that ends a second is a whole tick, too."""
        self._since.pop(False, None)
        if is_slow:
            self._since.pop(True, None)

    def are_lasting(self) -> bool:
        """Whether ticks have failed for so long that the agent is not alive."""
        now_ns = self._clock.monotonic_ns()
        return any(now_ns - since_ns > FAILING_SECONDS * 1e9 for since_ns in tuple(self._since.values()))


def _kind(error: Exception) -> _Kind:
    """Its class, and where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return (type(error).__name__, *place)
