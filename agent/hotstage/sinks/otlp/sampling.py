# SPDX-License-Identifier: Apache-2.0
"""Which finished requests are worth their spans: tail sampling, decided when all is known. Pure.

In this order: a caller that does not sample is respected (W3C: its trace is recorded nowhere); requests that
failed or met an anomaly window are taken, then those that were slow among their like; of the rest a share, by
trace id, so that every host and every run decides alike about one trace. What is taken then needs tokens:
`spans_per_second` is a bound, and a part of it is kept for what comes earlier in this order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hotstage.sinks.otlp.notes import NOT_SAMPLED, PARENT_NOT_SAMPLED, RATE_LIMIT
from hotstage.sinks.otlp.requests import FinishedRequest
from hotstage.stages.stage import STAGE_SLOTS
from hotstage.windows.window import AnomalyWindow

DECISION_NS = 5_000_000_000
"""A request is judged this long after its end: the window that it caused opens about then."""

_CLOSED_KEPT_NS = 600_000_000_000
_WINDOWS_KEPT = 512
_RATIO_ONE = 1 << 64

WINDOW, ERROR, SLOW, BASELINE = "window", "error", "slow", "baseline"
_KEPT_FOR_OTHERS = {WINDOW: 0.0, ERROR: 0.0, SLOW: 0.25, BASELINE: 0.5}
"""Share of a burst that a request leaves to those that matter more."""


class Watch:
    """The windows that are open, and those that were while requests of now were in flight."""

    def __init__(self) -> None:
        self._windows: dict[str, AnomalyWindow] = {}

    def see(self, windows: Iterable[AnomalyWindow], now_ns: int) -> None:
        """These are as they are now; old ones are forgotten."""
        self._windows |= {window.id: window for window in windows}
        self._windows = {
            name: window
            for name, window in list(self._windows.items())[-_WINDOWS_KEPT:]
            if window.closed_ns is None or window.closed_ns > now_ns - _CLOSED_KEPT_NS
        }

    def __len__(self) -> int:
        return len(self._windows)

    def touching(self, request: FinishedRequest) -> tuple[str, ...]:
        """Ids of the windows on something that the request went through, while they were open or up to
        `DECISION_NS` before.
        """
        return tuple(
            window.id
            for window in self._windows.values()
            if request.ended_ns >= window.opened_ns - DECISION_NS
            and (window.closed_ns is None or request.started_ns <= window.closed_ns)
            and request.is_of(window.entity)
        )


class TokenBucket:
    """At most `per_second` on average; a burst of one second, and always of one whole request."""

    def __init__(self, per_second: float, now_ns: int) -> None:
        self._per_second = per_second
        self._capacity = max(per_second, STAGE_SLOTS + 1.0)
        self._tokens = self._capacity
        self._at_ns = now_ns

    def take(self, count: int, now_ns: int, *, keep_ratio: float = 0.0) -> bool:
        """Whether there were `count` tokens beyond `keep_ratio` of the capacity; then they are gone."""
        gained = max(now_ns - self._at_ns, 0) / 1e9 * self._per_second
        self._tokens = min(self._capacity, self._tokens + gained)
        self._at_ns = now_ns
        if self._tokens - count < keep_ratio * self._capacity:
            return False
        self._tokens -= count
        return True


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` why it is exported (window, error, slow, baseline) or, if it is not, dropped."""

    is_exported: bool
    reason: str


class Sampler:
    """`baseline_ratio` of the unremarkable, all others, `spans_per_second` at most. Not thread-safe."""

    def __init__(self, baseline_ratio: float, spans_per_second: float, now_ns: int) -> None:
        # As OpenTelemetry's TraceIdRatioBased: the lower 64 bits against a bound.
        self._bound = round(baseline_ratio * _RATIO_ONE)
        self._bucket = TokenBucket(spans_per_second, now_ns)

    def in_baseline(self, trace_id: int) -> bool:
        return trace_id % _RATIO_ONE < self._bound

    def judge(
        self,
        *,
        trace_id: int,
        is_parent_sampled: bool | None,
        has_failed: bool,
        is_touched: bool,
        is_slow: bool = False,
        spans: int,
        now_ns: int,
    ) -> Verdict:
        """`is_parent_sampled` is None for a request without a traceparent."""
        if is_parent_sampled is False:
            return Verdict(False, PARENT_NOT_SAMPLED)
        why = WINDOW if is_touched else ERROR if has_failed else SLOW if is_slow else BASELINE
        if why is BASELINE and not self.in_baseline(trace_id):
            return Verdict(False, NOT_SAMPLED)
        if not self._bucket.take(spans, now_ns, keep_ratio=_KEPT_FOR_OTHERS[why]):
            return Verdict(False, RATE_LIMIT)
        return Verdict(True, why)
