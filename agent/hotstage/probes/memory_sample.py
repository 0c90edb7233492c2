# SPDX-License-Identifier: Apache-2.0
"""What the memory ledger says at one moment. Values; no map is read here.

Times are CLOCK_MONOTONIC ns. Device 255 (`layout.NO_DEVICE`): of no device, or not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.catalogue.spec import Memory
from hotstage.probes.maps.ledger import (
    MEMORY_KEY_DTYPE,
    MEMORY_STAGE_DTYPE,
    MEMORY_STAGE_KEY_DTYPE,
    MEMORY_SUM_DTYPE,
)

PAGE_BYTES = 2 << 20
"""The driver maps a GPU's memory in pages of this size, so that any of them make one range of addresses."""

FOR_GPUS = (Memory.DEVICE, Memory.PITCHED, Memory.MANAGED, Memory.POOL, Memory.PHYSICAL, Memory.ARRAY)
"""Kinds that take room on a GPU; what is mapped is physical memory already."""
POINTERS = (Memory.DEVICE, Memory.PITCHED)
"""Kinds that the driver puts into pages of its own choice."""
SIZELESS = (Memory.IMPORTED, Memory.SHARED)
"""Kinds of which no call says how many bytes they are."""
AGE_EDGES_SECONDS = (1.0, 10.0, 60.0, 600.0, 3600.0)

_AGES = [("oldest_ns", "<u8"), ("median_ns", "<u8")]
"""When the oldest and the median of its live allocations were made; 0 where it has none."""
MEMORY_ROW_DTYPE = np.dtype([*MEMORY_KEY_DTYPE.descr[:3], *MEMORY_SUM_DTYPE.descr, *_AGES])
STAGE_ROW_DTYPE = np.dtype([*MEMORY_STAGE_KEY_DTYPE.descr[:4], *MEMORY_STAGE_DTYPE.descr, *_AGES])
MOST_BYTES = 1 << 48
"""256 TiB: no GPU has it, and sums of it keep far from 2^64. Programs choose what they ask for: what is said
to live beyond is no measurement, and what it would be part of is unknown.
"""

PAGE_ROW_DTYPE = np.dtype([("tgid", "<u4"), ("device", "<u4"), ("live_bytes", "<u8"), ("page_bytes", "<u8")])


class Basis(IntEnum):
    """Where a figure of fragmentation comes from, the better the higher (RULES a)."""

    UNKNOWN = 0
    INFERRED = 1
    """An allocation failed while more was free: a lower bound."""
    LEDGER = 2
    """Free memory in pages that live allocations hold."""
    POOL = 3
    """Of what a pool or an allocator holds, the part that it has not given out: slack, not contiguity."""
    TORCH = 4
    """Free memory inside the segments of PyTorch's allocator: exact."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one process on one device, or of a GPU. `ratio` = 1 - largest_free ÷ free, of `pool` 1 - used ÷
    reserved; None where it is not known. `largest_free_bytes` None: this basis does not know it.
    """

    basis: Basis
    ratio: float | None = None
    free_bytes: int | None = None
    largest_free_bytes: int | None = None
    why: str = ""
    """Of `unknown`: what is missing; of `inferred`: the evidence."""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Everything that is allocated now, summed up.

    sums:   MEMORY_ROW_DTYPE (N,), by process, kind and device, cumulative.
    stages: STAGE_ROW_DTYPE (M,), by process, device, stage and modality.
    pools:  (pid, device) → what its pools said last, of those that were asked both ways.
    pages:  PAGE_ROW_DTYPE (P,), by process and device: what pointers take of the pages that they lie in.
    ages:   (pid, device) → uint64 (2, 6): live allocations and bytes by age, up to each of
            `AGE_EDGES_SECONDS` and beyond.
    names:  of every process that is watched.
    from_start: processes of which no allocation was made before the probes were there.
    uuids:  (pid, ordinal) → `GPU-…`.
    exact:  (pid, device) → fragmentation by whoever knows the inside of segments.
    """

    at_ns: int
    sums: NDArray[np.void]
    stages: NDArray[np.void]
    pages: NDArray[np.void]
    ages: Mapping[tuple[int, int], NDArray[np.uint64]]
    pools: Mapping[tuple[int, int], Estimate] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    from_start: Collection[int] = ()
    uuids: Mapping[tuple[int, int], str] = field(default_factory=dict)
    exact: Mapping[tuple[int, int], Estimate] = field(default_factory=dict)
    ended_processes: int = 0
    ended_bytes: int = 0
    """Memory for GPUs that processes had when they ended, since the start: implicit frees."""


def with_ages(
    keys: NDArray[np.void],
    sums: NDArray[np.void],
    ages: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    dtype: np.dtype[np.void],
) -> NDArray[np.void]:
    """Keys and sums as rows of `dtype`, with since when their oldest and their median are."""
    rows = np.zeros(len(keys), dtype)
    for source in (keys, sums):
        for name in source.dtype.names or ():
            if name in (dtype.names or ()):
                rows[name] = source[name]
    rows["oldest_ns"], rows["median_ns"] = ages
    return rows
