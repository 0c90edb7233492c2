# SPDX-License-Identifier: Apache-2.0
"""Cumulative counts by label values, bounded. No client library, no lock: its owner has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.sinks.metric import Metric

Labels = tuple[str, ...]
HistogramChildren = list[tuple[Labels, list[tuple[str, float]], float]]
"""Labels, cumulative (upper bound, count) pairs that end with +Inf, sum."""
OTHER = "other"
_NOWHERE, _UNKNOWN = -2, -1


class Slots:
    """Rows that count together again and again: of each its labels, None: it counts nowhere. Their places in
    the tally are found when they first count, not before: a child that is 0 is a statement.
    """

    def __init__(self, labels: Sequence[Labels | None]) -> None:
        self.labels = labels
        self.places = np.array([_UNKNOWN if each else _NOWHERE for each in labels], np.intp)
        self.is_other = np.zeros(len(labels), np.bool_)


class Tally:
    """A counter's children. Beyond the metric's cap all further label values share one child, `other`."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.dropped = 0
        self._places: dict[Labels, int] = {}
        self._totals = np.zeros(64)

    def add(self, labels: Labels, count: float = 1.0) -> None:
        place, is_other = self._place_of(labels)
        self.dropped += is_other
        self._totals[place] += count

    def add_at(self, slots: Slots, counts: NDArray[Any], *, is_moved: NDArray[np.bool_]) -> None:
        """`add` of every row that has moved, (N,) as `slots`."""
        is_counted = is_moved & (slots.places != _NOWHERE)
        for row in np.flatnonzero(is_counted & (slots.places == _UNKNOWN)).tolist():
            labels = slots.labels[row]
            assert labels is not None
            slots.places[row], slots.is_other[row] = self._place_of(labels)
        rows = np.flatnonzero(is_counted)
        self.dropped += int(np.count_nonzero(slots.is_other[rows]))
        np.add.at(self._totals, slots.places[rows], counts[rows])

    def items(self) -> Iterator[tuple[Labels, float]]:
        return zip(self._places, self._totals.tolist(), strict=False)

    def __len__(self) -> int:
        return len(self._places)

    def _place_of(self, labels: Labels) -> tuple[int, bool]:
        """(where their count is, whether it is that of `other`)."""
        is_other = _is_full(labels, self._places, self.metric.cap)
        if is_other:
            labels = (OTHER,) * len(labels)
        place = self._places.get(labels)
        if place is None:
            place = self._places[labels] = len(self._places)
            if place == len(self._totals):
                self._totals = np.concatenate([self._totals, np.zeros(len(self._totals))])
        return place, is_other


class HistogramTally:
    """A histogram's children: counts per bucket of `metric.edges` (upper bounds, inclusive) and a sum."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.dropped = 0
        self._edges = np.array(metric.edges)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def buckets(self, values: NDArray[np.float64]) -> list[int]:
        """(N,) values → the number of each one's bucket, for `add`."""
        found: list[int] = np.searchsorted(self._edges, values, side="left").tolist()
        return found

    def add(self, labels: Labels, bucket: int, value: float, weight: int = 1) -> None:
        """One value of that bucket, seen `weight` times."""
        if _is_full(labels, self._counts, self.metric.cap):
            labels = (OTHER,) * len(labels)
            self.dropped += weight
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._edges) + 1)
            self._sums[labels] = 0.0
        counts[bucket] += weight
        self._sums[labels] += value * weight

    def merge(self, labels: Labels, buckets: list[int], total: float) -> None:
        """Values that are in buckets already: so many in each of `metric.edges` and above, and their sum."""
        count = sum(buckets)
        if _is_full(labels, self._counts, self.metric.cap):
            labels = (OTHER,) * len(labels)
            self.dropped += count
        counts = self._counts.setdefault(labels, [0] * (len(self._edges) + 1))
        for place, more in enumerate(buckets):
            counts[place] += more
        self._sums[labels] = self._sums.get(labels, 0.0) + total

    def items(self) -> Iterator[tuple[Labels, list[tuple[str, float]], float]]:
        """Labels, cumulative (upper bound, count) pairs that end with +Inf, sum."""
        bounds = bounds_of(self.metric.edges)
        for labels, counts in self._counts.items():
            yield labels, list(zip(bounds, accumulate(counts), strict=True)), self._sums[labels]

    def __len__(self) -> int:
        return len(self._counts)


def bounds_of(edges: Iterable[float]) -> list[str]:
    """The buckets' upper bounds as `le` shows them, +Inf last."""
    return [*(repr(float(edge)) for edge in edges), "+Inf"]


def _is_full(labels: Labels, children: Mapping[Labels, object], cap: int) -> bool:
    """Whether there is no child of these labels and no room for one; the last place is kept for `other`."""
    return labels not in children and len(children) >= cap - 1
