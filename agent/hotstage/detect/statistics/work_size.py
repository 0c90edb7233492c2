# SPDX-License-Identifier: Apache-2.0
"""How long a piece of work takes for its size: seconds ≈ c · (t0 + tokens), fitted robustly on a log scale.

t0 = 0 is proportional to the tokens, t0 = ∞ does not depend on them; the best of a few t0 is taken, by the
scatter of the logarithms that remains. So a large input is not an anomaly, and one outlier moves nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.detect.statistics.ranks import median, medians, quantile

Floats = NDArray[np.float64]

_OFFSETS = np.array([0.0, *(2.0**power for power in range(-4, 7))])
"""Candidates for t0 in units of the median number of tokens; beyond the last, the size hardly matters."""

_SAID_RATIO = 0.8
"""Share of the samples that must say their tokens before tokens are believed to be the measure of work."""

_WORTH_IT = 0.9
"""The scatter must shrink to this part before tokens are used: with few samples anything seems to fit."""


@dataclass(frozen=True, slots=True)
class WorkSize:
    """`log2` of the seconds that work of a size takes as a rule; made by `fit`."""

    log_rate: float
    """log2 of c; of the plain seconds where `offset` is infinite."""
    offset: float
    largest: float
    """Sizes beyond this were not seen: there the fit is only a guess."""
    plain_high: float
    """log2 seconds that 95 % stay below, whatever their size."""

    def expected(self, tokens: Floats) -> Floats:
        """log2 of the usual seconds for (N,) sizes; 0 or NaN tokens = not said."""
        if math.isinf(self.offset):
            return np.full(len(tokens), self.log_rate)
        said = tokens > 0
        usual = self.log_rate + np.log2(self.offset + np.where(said, tokens, 1.0))
        return np.where(said, usual, self.plain_high)

    def high(self, tokens: Floats) -> Floats:
        """Seconds that work of (N,) sizes may take; beyond the largest size seen, growth may be quadratic."""
        if math.isinf(self.offset):
            return np.full(len(tokens), 2.0**self.plain_high)
        beyond = np.log2(np.maximum(tokens / max(self.largest, 1.0), 1.0))
        seconds: Floats = np.exp2(self.expected(tokens) + beyond)
        return seconds

    def excess_of(self, log_seconds: float, tokens: float) -> float:
        """`excess` of one piece of work, without the cost of arrays."""
        if math.isinf(self.offset):
            return log_seconds - self.log_rate
        if tokens <= 0:
            return log_seconds - self.plain_high
        usual = self.log_rate + math.log2(self.offset + tokens)
        return log_seconds - usual - math.log2(max(tokens / max(self.largest, 1.0), 1.0))

    def excess(self, log_seconds: Floats, tokens: Floats) -> Floats:
        """log2 of actual ÷ usual duration, (N,). Beyond the largest size seen, growth may be quadratic."""
        excess = log_seconds - self.expected(tokens)
        if math.isinf(self.offset):
            return excess
        beyond = np.log2(np.maximum(tokens / max(self.largest, 1.0), 1.0))
        return excess - beyond


def fit(log_seconds: Floats, tokens: Floats) -> WorkSize:
    """Fit (N,) samples, N ≥ 1; tokens 0 = not said."""
    ordered = np.sort(log_seconds)
    middle, plain_high = median(ordered), quantile(ordered, 0.95)
    plain = WorkSize(middle, math.inf, math.inf, plain_high)
    said = tokens > 0
    if np.count_nonzero(said) < max(_SAID_RATIO * len(tokens), 4):
        return plain
    logs, sizes = log_seconds[said], tokens[said]
    ordered_sizes = np.sort(sizes)
    offsets = _OFFSETS * median(ordered_sizes)
    rests = np.sort(logs - np.log2(offsets[:, None] + sizes), axis=1)  # (candidates, N)
    rates = medians(rests)
    scatters = np.abs(rests - rates[:, None]).mean(axis=1)
    best = int(scatters.argmin())
    plain_scatter = float(np.abs(logs - median(np.sort(logs))).mean())
    if scatters[best] > _WORTH_IT * plain_scatter:
        return plain
    return WorkSize(float(rates[best]), float(offsets[best]), quantile(ordered_sizes, 0.98), plain_high)
