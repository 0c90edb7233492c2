# SPDX-License-Identifier: Apache-2.0
"""Durations over a window, from two readings of counts since the start. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hotstage.engines.reading import Spread


class Basis(StrEnum):
    """Where a phase's quantiles come from."""

    histogram = "histogram"
    """Interpolated inside the bucket that holds the rank: as exact as the engine's edges are close."""
    below_edges = "below_edges"
    """The rank is in the first bucket: all that is known of p95 is that it is below its edge."""
    above_edges = "above_edges"
    """The rank is above the last edge: p95 is that edge, and the true value is larger."""
    summary = "summary"
    """The engine's own, over a window of its own."""
    mean = "mean"
    """The engine tells sums and counts only: there is a mean and no quantile."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase over the window; NaN where it is unknown. `count` ended in it."""

    p50_seconds: float
    p95_seconds: float
    mean_seconds: float
    count: float
    basis: Basis


def phase(now: Spread, before: Spread | None, min_samples: int) -> Phase:
    """What was added since `before`; None = the engine had not told of this phase, so all of it is new.

    Quantiles of fewer than `min_samples` are unknown.
    """
    count = now.count - (0.0 if before is None else before.count)
    total = now.total_seconds - (0.0 if before is None else before.total_seconds)
    mean = total / count if count > 0 and total >= 0 else math.nan
    if now.edges:
        counts = _since(now, before)
        if count < min_samples:
            return Phase(math.nan, math.nan, mean, count, Basis.histogram)
        p50, _ = quantile(now.edges, counts, 0.50, mean)
        p95, basis = quantile(now.edges, counts, 0.95, mean)
        return Phase(p50, p95, mean, count, basis)
    if now.quantiles:
        p50, p95 = (now.quantiles.get(share, math.nan) for share in (0.5, 0.95))
        return Phase(p50, p95, mean, count, Basis.summary)
    return Phase(math.nan, math.nan, mean, count, Basis.mean)


def quantile(
    edges: Sequence[float], counts: Sequence[float], share: float, mean: float = math.nan
) -> tuple[float, Basis]:
    """The value by linear interpolation in the bucket that holds the rank, and what it is based on.

    `counts` are cumulative, (N,) beside `edges`, whose last is infinite. Where the mean is known, the value
    is no larger than it allows: of durations, at most 1 in 20 takes 20 times the mean. That is what keeps an
    empty queue from looking like a wait when the first edge is at 0.3 s. NaN of nothing, and without an edge.
    """
    if len(edges) < 2 or counts[-1] <= 0:
        return math.nan, Basis.histogram
    rank, below, low, is_first = share * counts[-1], 0.0, 0.0, True
    for edge, height in zip(edges, counts, strict=True):
        if height >= rank and height > below:
            if edge == math.inf:
                return low, Basis.above_edges
            floor = min(low, edge)
            value = floor + (edge - floor) * (rank - below) / (height - below)
            if not math.isnan(mean):
                value = max(min(value, mean / (1 - share)), floor)
            is_vague = is_first and edge > 0
            return value, Basis.below_edges if is_vague else Basis.histogram
        below, low, is_first = max(below, height), edge, is_first and height <= 0 and edge <= 0
    return math.nan, Basis.histogram


def _since(now: Spread, before: Spread | None) -> list[float]:
    """Edges that were not there before, as after a change of buckets, count from zero."""
    known = {} if before is None else dict(zip(before.edges, before.counts, strict=True))
    return [max(count - known.get(edge, 0.0), 0.0) for edge, count in zip(now.edges, now.counts, strict=True)]
