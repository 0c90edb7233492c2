# SPDX-License-Identifier: Apache-2.0
"""What is usual for one stage and modality: durations by size, per instance, and how much they scatter.

Samples wait before they count and are thrown away when an alarm comes meanwhile, so that a slowly growing
fault is not learned as usual. Once it knows enough it learns slowly.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.detect.statistics.ranks import median, quantile
from hotstage.detect.statistics.work_size import WorkSize, fit

Floats = NDArray[np.float64]

CAPACITY = 256
QUARANTINE_NS = 5_000_000_000
SLOW_EVERY_NS = 3_000_000_000
"""Once full, one sample in this time replaces the oldest: the whole baseline turns over in 13 minutes."""

_NEVER_NS = 1 << 63
_REFIT_NS = 10_000_000_000
_SCATTER_FLOOR = 0.15
_QUICK_SAMPLES, _QUICK_NS = 8, 8_000_000_000
_INSTANCE_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Usual:
    """One fit. Logarithms are base 2."""

    size: WorkSize
    instance_offsets: dict[int, float]
    scatter: float
    """Standard deviation of the log duration per unit of work, by the wider of two robust estimates."""
    exceed_ratio: float
    """Share of usual samples above the suspicious level."""
    seconds: float
    """Median duration."""


class Baseline:
    """Fed with ended spans; `usual` is None until it has learned enough. Not thread-safe."""

    def __init__(self, min_samples: int, suspicious: float) -> None:
        self._min_samples = min_samples
        self._suspicious = suspicious
        self._logs = np.zeros(CAPACITY)
        self._tokens = np.zeros(CAPACITY)
        self._instances = np.zeros(CAPACITY, np.int64)
        self._count = 0
        self._oldest = 0
        self._waiting: deque[tuple[int, float, float, int]] = deque(maxlen=4 * CAPACITY)
        self._first_ns: int | None = None
        self._fitted_ns = 0
        self._fitted_count = 0
        self._admitted_ns = 0
        self._has_news = False  # something was admitted since the last fit
        self.usual: Usual | None = None
        self.due_ns = _NEVER_NS
        """From when on `advance` may have something to do; before it a call changes nothing."""

    def excess_of(self, log_seconds: float, tokens: float, instance: int) -> float:
        """log2 of actual ÷ usual of one piece of work; call it only when `usual` is known."""
        assert self.usual is not None
        return self.usual.size.excess_of(log_seconds, tokens) - self.usual.instance_offsets.get(instance, 0.0)

    def learn(self, at_ns: int, log_seconds: float, tokens: float, instance: int) -> None:
        """Take a sample in; it counts at once while nothing is known, after the quarantine otherwise."""
        if self._first_ns is None:
            self._first_ns = at_ns
        if self.usual is None:
            self._admit(log_seconds, tokens, instance)
            self.due_ns = at_ns
        else:
            self._waiting.append((at_ns, log_seconds, tokens, instance))
            self.due_ns = min(self.due_ns, at_ns + QUARANTINE_NS)

    def advance(self, at_ns: int, *, is_suspicious: bool) -> None:
        """Let samples out of quarantine unless something looks wrong, and fit again when it is due."""
        self._advance(at_ns, is_suspicious=is_suspicious)
        self.due_ns = self._next_due_ns(at_ns)

    def _advance(self, at_ns: int, *, is_suspicious: bool) -> None:
        if not is_suspicious:
            self._release(at_ns)
        if not self._has_news or (self.usual is None and not self._knows_enough(at_ns)):
            return
        is_old = at_ns - self._fitted_ns >= _REFIT_NS
        if self.usual is None or is_old or (self._has_grown() and not is_suspicious):
            self._fit(at_ns)

    def freeze(self) -> None:
        """An alarm: what waits may be part of the fault."""
        self._waiting.clear()

    def forget(self) -> None:
        """Start over: what was unusual has become usual."""
        self._count = self._oldest = self._fitted_count = 0
        self._first_ns = None
        self._waiting.clear()
        self._has_news = False
        self.usual = None
        self.due_ns = _NEVER_NS

    def _next_due_ns(self, at_ns: int) -> int:
        let_out_ns = self._waiting[0][0] + QUARANTINE_NS if self._waiting else _NEVER_NS
        if not self._has_news:
            return let_out_ns
        is_now = self.usual is None or self._has_grown()
        return min(let_out_ns, at_ns if is_now else self._fitted_ns + _REFIT_NS)

    def _has_grown(self) -> bool:
        return self._count >= 1.25 * self._fitted_count

    def _knows_enough(self, at_ns: int) -> bool:
        if self._count >= self._min_samples:
            return True
        began = at_ns if self._first_ns is None else self._first_ns
        return self._count >= _QUICK_SAMPLES and at_ns - began >= _QUICK_NS

    def _release(self, at_ns: int) -> None:
        while self._waiting and at_ns - self._waiting[0][0] >= QUARANTINE_NS:
            sampled_ns, log_seconds, tokens, instance = self._waiting.popleft()
            if self._count >= CAPACITY and sampled_ns - self._admitted_ns < SLOW_EVERY_NS:
                continue
            self._admitted_ns = sampled_ns
            self._admit(log_seconds, tokens, instance)

    def _admit(self, log_seconds: float, tokens: float, instance: int) -> None:
        if self._count < CAPACITY:
            place, self._count = self._count, self._count + 1
        else:
            place, self._oldest = self._oldest, (self._oldest + 1) % CAPACITY
        self._logs[place], self._tokens[place], self._instances[place] = log_seconds, tokens, instance
        self._has_news = True

    def _fit(self, at_ns: int) -> None:
        logs, tokens = self._logs[: self._count], self._tokens[: self._count]
        instances = self._instances[: self._count]
        size = fit(logs, tokens)
        rest = size.excess(logs, tokens)
        offsets = _instance_offsets(rest, instances)
        for instance, offset in offsets.items():
            rest[instances == instance] -= offset
        self.usual = Usual(
            size=size,
            instance_offsets=offsets,
            scatter=_scatter(rest),
            exceed_ratio=float(np.mean(rest > self._suspicious)),
            seconds=2.0 ** median(np.sort(logs)),
        )
        self._fitted_ns, self._fitted_count, self._has_news = at_ns, self._count, False


def _instance_offsets(rest: Floats, instances: NDArray[np.int64]) -> dict[int, float]:
    """How much slower (log2) an instance is as a rule than all of them; a slower GPU is not an anomaly."""
    counts = np.bincount(instances)
    if np.count_nonzero(counts) < 2:
        return {}
    known = np.flatnonzero(counts >= _INSTANCE_SAMPLES).tolist()
    return {instance: median(np.sort(rest[instances == instance])) for instance in known}


def _scatter(rest: Floats) -> float:
    """Robust standard deviation: from the median deviation, or from the upper tail if that is wider."""
    ordered = np.sort(rest)
    middle = median(ordered)
    spread = 1.4826 * median(np.sort(np.abs(ordered - middle)))
    tail = (quantile(ordered, 0.9) - middle) / 1.2816
    return max(spread, tail, _SCATTER_FLOOR)
