# SPDX-License-Identifier: Apache-2.0
"""Readings of one engine in order of time → totals, rates, durations of the last minute. No I/O, no clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hotstage.engines.quantiles import phase
from hotstage.engines.reading import Page, Reading, merged
from hotstage.engines.samples import ModelSample
from hotstage.engines.table import COUNTERS, GAUGES

RATE_NS = 10_000_000_000
_STARTED_TOLERANCE_SECONDS = 1.0
_RATES = {
    "prompt_token_rate": "prompt_tokens",
    "output_token_rate": "output_tokens",
    "preemption_rate": "preemptions",
}


@dataclass(frozen=True, slots=True)
class _Look:
    at_ns: int
    models: Mapping[str, Reading]
    whole: Reading
    started_seconds: float


class Meter:
    """`take` each page. Not thread-safe."""

    def __init__(self, window_seconds: float, min_samples: int, epoch: int = 0) -> None:
        self._window_seconds = window_seconds
        self._window_ns = round(window_seconds * 1e9)
        self._min_samples = min_samples
        self._looks: deque[_Look] = deque()
        self.epoch = epoch

    def anew(self) -> Meter:
        """For another engine at the same place: nothing of the one before is compared with it."""
        return Meter(self._window_seconds, self._min_samples, self.epoch + 1)

    def take(self, at_ns: int, page: Page) -> tuple[tuple[ModelSample, ...], ModelSample]:
        """(each model by name, all together) as of `at_ns`. The first page of an epoch knows no rates."""
        now = _Look(at_ns, page.models, merged(page.models.values()), page.started_seconds)
        if self._looks and _began_anew(self._looks[-1], now):
            self._looks.clear()
            self.epoch += 1
        while self._looks and at_ns - self._looks[0].at_ns > self._window_ns:
            self._looks.popleft()
        models = tuple(
            self._sample(name, reading, at_ns, [look.models.get(name) for look in self._looks])
            for name, reading in sorted(page.models.items())
        )
        total = self._sample("", now.whole, at_ns, [look.whole for look in self._looks])
        self._looks.append(now)
        return models, total

    def _sample(self, name: str, now: Reading, at_ns: int, before: Sequence[Reading | None]) -> ModelSample:
        """`before` are this model's readings beside `_looks`, None where the page did not have it."""
        named = {field: now.gauges.get(field, math.nan) for field in GAUGES}
        named |= {f"{field}_total": now.counters.get(field, math.nan) for field in COUNTERS}
        if before:
            named |= self._rates(now, at_ns, before)
        phases = {}
        for key, spread in now.spreads.items():
            if before:
                base = before[0].spreads.get(key) if before[0] is not None else None
                phases[key] = phase(spread, base, self._min_samples)
        return ModelSample(name, **named, waiting=now.waiting, requests=now.requests, phases=phases)

    def _rates(self, now: Reading, at_ns: int, before: Sequence[Reading | None]) -> dict[str, float]:
        """Over the last 10 s, or since the last page where they come more seldom."""
        recent = (row for row, look in enumerate(self._looks) if at_ns - look.at_ns <= RATE_NS)
        row = next(recent, len(before) - 1)
        seconds = (at_ns - self._looks[row].at_ns) / 1e9
        base = before[row] or Reading()
        if seconds <= 0:
            return {}
        rates = {
            rate: (now.counters[field] - base.counters.get(field, 0.0)) / seconds
            for rate, field in _RATES.items()
            if field in now.counters
        }
        if now.requests:
            rates["request_rate"] = (_ended(now.requests) - _ended(base.requests)) / seconds
        return rates


def _ended(requests: Mapping[str, float]) -> float:
    """Requests that ended: all of them where the engine tells that, else the sum of the outcomes."""
    return requests["ended"] if "ended" in requests else sum(requests.values())


def _began_anew(before: _Look, now: _Look) -> bool:
    """A later start, or a count that fell. A model that went away is no restart."""
    if now.started_seconds - before.started_seconds > _STARTED_TOLERANCE_SECONDS:
        return True
    for name, reading in now.models.items():
        old = before.models.get(name)
        if old is not None and any(low < high for low, high in _pairs(reading, old)):
            return True
    return False


def _pairs(now: Reading, before: Reading) -> Iterator[tuple[float, float]]:
    """(now, before) of every count that both have."""
    for new, old in ((now.counters, before.counters), (now.requests, before.requests)):
        yield from ((value, old[key]) for key, value in new.items() if key in old)
    for key, spread in now.spreads.items():
        if key in before.spreads:
            yield spread.count, before.spreads[key].count
