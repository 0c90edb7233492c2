# SPDX-License-Identifier: Apache-2.0
"""Launches by kernel of the whole host, as counters that never fall: the names launched most, and a rest.

A launch is credited once, to the name if that is among those shown at the time, else to the rest. So a name
that is shown later begins with what it launched from then on, one that is shown no more takes nothing back
from the rest, and all that was ever credited is all launches. Names are bounded and cleaned, for strangers
chose them, and none of them is taken for the rest.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from math import exp

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.kernel_names import short_name
from hotstage.probes.kernel_table import GRAPH_NAME, split
from hotstage.probes.maps.names import GRAPHS, NO_KERNEL

UNNAMED_NAME = "(unnamed)"
OTHER_NAME = "other"
_RESERVED = frozenset({GRAPH_NAME, UNNAMED_NAME, OTHER_NAME})
_MEMORY_SECONDS = 60.0
"""For how long launches speak for a name."""
_LEAD = 2.0
"""So many times the launches of the least shown name another one needs to take its place."""
_SWAP_SECONDS = 10.0
_KEPT = 1024
"""Names not shown whose weight, or count of once, is kept."""


class KernelSeries:
    """`step` at each look. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        """`limit`: names that are shown at once, beside graphs, what has no name, and the rest."""
        self._limit = limit
        self._samples: dict[tuple[int, int], int] = {}
        self._accounted: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._weights: dict[str, float] = {}
        self._shown: dict[str, int] = {}
        self._hidden: OrderedDict[str, int] = OrderedDict()
        self._credited = 0
        self._other = 0
        self._at_ns = 0
        self._swapped_ns = 0

    def step(
        self,
        at_ns: int,
        total: int,
        launches: Mapping[int, int],
        keys: NDArray[np.void],
        states: NDArray[np.void],
    ) -> list[tuple[str, int]]:
        """(kernel, launches) as of now, most first.

        `total`: launches of all processes ever; `launches`: pid → those of the ones that are known now; keys
        and states: KERNEL_KEY_DTYPE and KERNEL_STATE_DTYPE (N,).
        """
        if not self._limit:
            return []
        grown = self._grown(launches, keys, states)
        self._weigh(at_ns, grown)
        for name, count in grown.items():
            if name in self._shown:
                self._shown[name] += count
                self._credited += count
        pending = sum(count - self._accounted.get(pid, 0) for pid, count in launches.items())
        self._other = max(self._other, total - self._credited - pending)
        shown = [(name, count) for name, count in self._shown.items() if count]
        return [
            *sorted(shown, key=lambda each: -each[1]),
            *([(OTHER_NAME, self._other)] if self._other else []),
        ]

    def _grown(
        self, launches: Mapping[int, int], keys: NDArray[np.void], states: NDArray[np.void]
    ) -> dict[str, int]:
        """Name → launches since the last step. Those of a process of which none was sampled wait."""
        columns = (keys["tgid"].tolist(), keys["name_hash"].tolist(), states["samples"].tolist())
        samples = {(pid, name_hash): count for pid, name_hash, count in zip(*columns, strict=True)}
        by_pid: dict[int, dict[int, int]] = defaultdict(dict)
        for (pid, name_hash), count in samples.items():
            before = self._samples.get((pid, name_hash), 0)
            more = count - before if count >= before else count
            if more:
                by_pid[pid][name_hash] = more
        self._samples = samples
        self._read_names(keys, states, {name_hash for each in by_pid.values() for name_hash in each})
        before_of = {pid: self._accounted.get(pid, 0) for pid in launches}
        self._accounted = {pid: told if told <= launches[pid] else 0 for pid, told in before_of.items()}
        grown: dict[str, int] = defaultdict(int)
        for pid, hashes in by_pid.items():
            more = launches.get(pid, 0) - self._accounted.get(pid, 0)
            if more <= 0:
                continue
            self._accounted[pid] = launches[pid]
            for name_hash, count in zip(hashes, split(more, list(hashes.values())), strict=True):
                grown[self._names[name_hash]] += count
        return grown

    def _read_names(self, keys: NDArray[np.void], states: NDArray[np.void], wanted: set[int]) -> None:
        """Of the hashes that were launched; a name is the same for every process that has its hash."""
        known = {name_hash: self._names[name_hash] for name_hash in wanted if name_hash in self._names}
        known |= {GRAPHS: GRAPH_NAME, NO_KERNEL: UNNAMED_NAME}
        for name_hash, raw in zip(keys["name_hash"].tolist(), states["name"].tolist(), strict=True):
            if name_hash in wanted and name_hash not in known:
                known[name_hash] = _shown_as(raw)
        self._names = known

    def _weigh(self, at_ns: int, grown: Mapping[str, int]) -> None:
        """Who is shown: whoever was launched most of late, and one change at a time."""
        faded = exp(-max(at_ns - self._at_ns, 0) / 1e9 / _MEMORY_SECONDS) if self._at_ns else 0.0
        self._at_ns = at_ns
        weights = {name: weight * faded for name, weight in self._weights.items()}
        for name, count in grown.items():
            weights[name] = weights.get(name, 0.0) + count
        ordered = sorted(weights, key=lambda name: -weights[name])
        self._weights = {name: weights[name] for name in ordered[:_KEPT] if weights[name] > 1e-3}
        for name in (GRAPH_NAME, UNNAMED_NAME):
            if name in grown:
                self._shown.setdefault(name, 0)
        waiting = [name for name in ordered if name not in self._shown and name not in _RESERVED]
        for name in waiting[: max(0, self._limit - len(self._named()))]:
            self._show(name)
        if waiting and waiting[0] not in self._shown and at_ns - self._swapped_ns >= _SWAP_SECONDS * 1e9:
            least = min(self._named(), key=lambda name: weights.get(name, 0.0))
            if weights[waiting[0]] > _LEAD * weights.get(least, 0.0):
                self._hide(least)
                self._show(waiting[0])
                self._swapped_ns = at_ns

    def _named(self) -> list[str]:
        return [name for name in self._shown if name not in _RESERVED]

    def _show(self, name: str) -> None:
        self._shown[name] = self._hidden.pop(name, 0)

    def _hide(self, name: str) -> None:
        """Its count goes on where it was, should it be shown again."""
        self._hidden[name] = self._shown.pop(name)
        while len(self._hidden) > _KEPT:
            self._hidden.popitem(last=False)


def _shown_as(raw: bytes) -> str:
    name = short_name(raw)
    if not name:
        return UNNAMED_NAME
    return f"{name}?" if name in _RESERVED else name
