# SPDX-License-Identifier: Apache-2.0
"""Copies by direction: by the call's name, or by what the kernel has put into its key (bpf/include/sizes.h).

Exact sums, processes that have gone included. Layers are never added up, as calls are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.catalogue.spec import Direction, Layer
from hotstage.probes.maps.layout import CALLS_MAX

DIRECTIONS = tuple(Direction)
_BY_KIND = (
    Direction.HOST_TO_HOST,
    Direction.HOST_TO_DEVICE,
    Direction.DEVICE_TO_HOST,
    Direction.DEVICE_TO_DEVICE,
)
"""In the order of `enum hotstage_direction`, which begins at 1."""
NO_COPY = len(DIRECTIONS)

_OF_ROW = np.full(CALLS_MAX, NO_COPY, np.int64)
for _call_id, _call in calls_by_id().items():
    if _call.direction is not None:
        _OF_ROW[_call_id] = DIRECTIONS.index(_call.direction)
_OF_KEY = np.array([-1, *(DIRECTIONS.index(each) for each in _BY_KIND)])


@dataclass(frozen=True, slots=True)
class CopyCount:
    """Copies that returned; `bytes` of those that succeeded and whose size stands where a probe may look."""

    calls: int
    errors: int
    bytes: int


CopyTotals = Mapping[str, Mapping[str, CopyCount]]
"""Layer → direction → count; without what there was none of."""


def directions(keys: NDArray[np.void]) -> NDArray[np.int64]:
    """CALL_KEY_DTYPE (N,) → where in DIRECTIONS each row's copies go, NO_COPY for other calls."""
    told = _OF_KEY[np.where(keys["direction"] <= len(_BY_KIND), keys["direction"], 0)]
    row = _OF_ROW[np.minimum(keys["call"], CALLS_MAX - 1)]
    return np.where((row != NO_COPY) & (told >= 0), told, row)


class CopyBook:
    """What has been taken out of the kernel so far; `sum` adds what is there now. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[int, ...]] = {}

    def keep(self, keys: NDArray[np.void], stats: NDArray[np.void]) -> None:
        """Last rows, CALL_KEY_DTYPE and CALL_STAT_DTYPE (N,), of processes that have gone."""
        self._kept = _added(self._kept, keys, stats)

    def sum(self, keys: NDArray[np.void], stats: NDArray[np.void]) -> CopyTotals:
        """With the rows that are there now."""
        found: dict[str, dict[str, CopyCount]] = {}
        for (layer, direction), counts in sorted(_added(self._kept, keys, stats).items()):
            of_layer = found.setdefault(Layer(layer).name.lower(), {})
            of_layer[DIRECTIONS[direction].value] = CopyCount(*counts)
        return found


def _added(
    sums: Mapping[tuple[int, int], tuple[int, ...]], keys: NDArray[np.void], stats: NDArray[np.void]
) -> dict[tuple[int, int], tuple[int, ...]]:
    found, where = dict(sums), directions(keys)
    rows = np.flatnonzero(where != NO_COPY)
    columns = (stats[name][rows].tolist() for name in ("count", "errors", "bytes"))
    for layer, direction, *counts in zip(
        keys["layer"][rows].tolist(), where[rows].tolist(), *columns, strict=True
    ):
        before = found.get((layer, direction), (0, 0, 0))
        found[layer, direction] = tuple(old + new for old, new in zip(before, counts, strict=True))
    return found
