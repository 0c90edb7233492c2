# SPDX-License-Identifier: Apache-2.0
"""Which children of a metric find room, for values that are read whole at each scrape. No client library."""

from __future__ import annotations

from collections import Counter, defaultdict

from hotstage.sinks.metric import Metric
from hotstage.sinks.now import Children
from hotstage.sinks.tally import OTHER


class Admission:
    """First come, first served, for ever: a counter whose child moved into `other` would seem to fall.

    `total` bounds the children of all metrics together. Not thread-safe.
    """

    def __init__(self, total: int | None = None) -> None:
        self._total = total
        self._with_rest: set[str] = set()
        self._admitted: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
        self.dropped: Counter[str] = Counter()
        """By metric's name: the most children that ever found no room in one scrape."""

    def admit(self, metric: Metric, children: Children) -> Children:
        """Those with room; of a counter the others summed up under `other`, of a gauge left out."""
        if metric.kind == "counter" and metric.labels:
            return self._admit_counter(metric, children)
        kept = children[: self._room_for_gauges(metric, len(children))]
        self._note(metric, len(children) - len(kept))
        return kept

    def _admit_counter(self, metric: Metric, children: Children) -> Children:
        """A child that is called `other` by whoever counts is the rest itself, and nothing lost."""
        admitted, kept, rest = self._admitted[metric.name], [], 0.0
        others = (OTHER,) * len(metric.labels)
        has_rest, left = False, 0
        for labels, value in children:
            is_rest = labels == others
            if not is_rest and labels not in admitted and len(admitted) < metric.cap - 1:
                self._admit_one(metric.name, labels)
            if labels in admitted:
                kept.append((labels, value))
            else:
                rest += value
                has_rest = True
                left += not is_rest
        self._note(metric, left)
        if has_rest and self._has_room_for_rest(metric.name):
            kept.append((others, rest))
        return kept

    def _admit_one(self, name: str, labels: tuple[str, ...]) -> None:
        """With it a place for `other`."""
        if self._has_room(1 + (name not in self._with_rest)):
            self._with_rest.add(name)
            self._admitted[name].add(labels)

    def _has_room_for_rest(self, name: str) -> bool:
        if name not in self._with_rest and self._has_room(1):
            self._with_rest.add(name)
        return name in self._with_rest

    def _room_for_gauges(self, metric: Metric, wanted: int) -> int:
        """Places of a gauge are numbers only: its children may be others at each scrape."""
        places = self._admitted[metric.name]
        while len(places) < min(wanted, metric.cap) and self._has_room(1):
            places.add((str(len(places)),))
        return len(places)

    def _has_room(self, needed: int) -> bool:
        """Beside what is taken, by children and by the rests of counters."""
        if self._total is None:
            return True
        taken = sum(len(places) for places in self._admitted.values()) + len(self._with_rest)
        return taken + needed <= self._total

    def _note(self, metric: Metric, left: int) -> None:
        self.dropped[metric.name] = max(self.dropped[metric.name], left)
