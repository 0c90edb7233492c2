# SPDX-License-Identifier: Apache-2.0
"""What one page of an engine says, in base units, by model. Values only; no names of any engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spread:
    """Durations since the engine began. `counts` are cumulative over `edges` (seconds, the last infinite);
    both are empty where the engine tells no histogram. `quantiles` are a summary's own: share → seconds.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    count: float
    total_seconds: float
    quantiles: Mapping[float, float] = field(default_factory=dict)


@dataclass(slots=True)
class Reading:
    """One model, or all of an endpoint's. A key that is absent was not on the page, or made no sense."""

    gauges: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    requests: dict[str, float] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """`models` by name, `` where the engine names none; `problems` are sentences, a few of them."""

    models: Mapping[str, Reading]
    started_seconds: float
    """Unix time at which the engine's process began; NaN where it does not say."""
    problems: tuple[str, ...]


def merged(readings: Iterable[Reading]) -> Reading:
    """All models of an endpoint as one: sums, the fullest cache, histograms on the edges they share."""
    whole = Reading()
    for each in readings:
        for name, value in each.gauges.items():
            is_ratio = name.endswith("_ratio")
            before = whole.gauges.get(name, 0.0)
            whole.gauges[name] = max(before, value) if is_ratio else before + value
        for into, part in (
            (whole.waiting, each.waiting),
            (whole.counters, each.counters),
            (whole.requests, each.requests),
        ):
            for name, value in part.items():
                into[name] = into.get(name, 0.0) + value
        for phase, spread in each.spreads.items():
            known = whole.spreads.get(phase)
            whole.spreads[phase] = spread if known is None else _joined(known, spread)
    return whole


def _joined(one: Spread, other: Spread) -> Spread:
    """Two summaries cannot be joined; their counts can."""
    edges = tuple(sorted(set(one.edges) & set(other.edges)))
    first, second = (dict(zip(each.edges, each.counts, strict=True)) for each in (one, other))
    return Spread(
        edges,
        tuple(first[edge] + second[edge] for edge in edges),
        one.count + other.count,
        one.total_seconds + other.total_seconds,
    )
