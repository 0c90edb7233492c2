# SPDX-License-Identifier: Apache-2.0
"""What the memory ledger says at one moment, and what it is grouped by. Values and pure functions of arrays;
no map is read here.

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
    Pair,
)

PAGE_BYTES = 2 << 20
"""The driver maps a GPU's memory in pages of this size, so that any of them make one range of addresses."""

FOR_GPUS = (Memory.DEVICE, Memory.PITCHED, Memory.MANAGED, Memory.POOL, Memory.PHYSICAL)
"""Kinds that take room on a GPU; what is mapped is physical memory already."""
POINTERS = (Memory.DEVICE, Memory.PITCHED)
"""Kinds that the driver puts into pages of its own choice."""
AGE_EDGES_SECONDS = (1.0, 10.0, 60.0, 600.0, 3600.0)

_AGES = [("oldest_ns", "<u8"), ("median_ns", "<u8")]
"""When the oldest and the median of its live allocations were made; 0 where it has none."""
MEMORY_ROW_DTYPE = np.dtype([*MEMORY_KEY_DTYPE.descr[:3], *MEMORY_SUM_DTYPE.descr, *_AGES])
STAGE_ROW_DTYPE = np.dtype([*MEMORY_STAGE_KEY_DTYPE.descr[:4], *MEMORY_STAGE_DTYPE.descr, *_AGES])
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


def page_rows(allocations: Pair) -> NDArray[np.void]:
    """PAGE_ROW_DTYPE by process and device: bytes of live pointers, and of the pages that they lie in."""
    keys, rows = allocations
    chosen = np.flatnonzero(np.isin(rows["kind"], POINTERS) & (rows["bytes"] > 0))
    owner = keys["tgid"][chosen].astype(np.uint64) << np.uint64(8) | rows["device"][chosen]
    order = np.lexsort((keys["address"][chosen], owner))
    owner, at = owner[order], chosen[order]
    page = np.uint64(PAGE_BYTES)
    first = keys["address"][at] // page
    last = (keys["address"][at] + rows["bytes"][at] - np.uint64(1)) // page
    pages = last - first + np.uint64(1)
    if len(at):  # a page that the one before ends in is counted with that one
        pages[1:] -= (owner[1:] == owner[:-1]) & (first[1:] == last[:-1])
    owners, index = np.unique(owner, return_inverse=True)
    found = np.zeros(len(owners), PAGE_ROW_DTYPE)
    found["tgid"], found["device"] = owners >> np.uint64(8), owners & np.uint64(0xFF)
    np.add.at(found["live_bytes"], index, rows["bytes"][at])
    np.add.at(found["page_bytes"], index, pages * page)
    return found


def with_ages(
    keys: NDArray[np.void],
    sums: NDArray[np.void],
    codes: NDArray[np.uint64],
    ages: AgeTable,
    dtype: np.dtype[np.void],
) -> NDArray[np.void]:
    """Keys and sums as rows of `dtype`; `codes` (N,) are theirs in the table of ages."""
    rows = np.zeros(len(keys), dtype)
    for source in (keys, sums):
        for name in source.dtype.names or ():
            if name in (dtype.names or ()):
                rows[name] = source[name]
    rows["oldest_ns"], rows["median_ns"] = ages.of(codes)
    return rows


class AgeTable:
    """Oldest and median of groups of live allocations."""

    def __init__(self, codes: NDArray[np.uint64], since_ns: NDArray[np.uint64]) -> None:
        """`codes` (A,) name the group of each allocation."""
        order = np.lexsort((since_ns, codes))
        self._codes, first, counts = np.unique(codes[order], return_index=True, return_counts=True)
        in_order = since_ns[order]
        self._oldest = in_order[first]
        self._median = in_order[first + counts // 2]

    def of(self, codes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """(oldest, median) since when, uint64 (N,), 0 for groups without an allocation."""
        nothing = np.zeros(len(codes), np.uint64)
        if not len(self._codes):
            return nothing, nothing
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        is_there = self._codes[at] == codes
        return np.where(is_there, self._oldest[at], nothing), np.where(is_there, self._median[at], nothing)


def kind_codes(tgid: NDArray[np.uint32], rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Process, kind and device as one number."""
    codes: NDArray[np.uint64] = tgid.astype(np.uint64) << np.uint64(16)
    codes |= rows["kind"].astype(np.uint64) << np.uint64(8) | rows["device"].astype(np.uint64)
    return codes


def stage_codes(tgid: NDArray[np.uint32], rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Process, device, stage and modality as one number."""
    codes: NDArray[np.uint64] = tgid.astype(np.uint64) << np.uint64(24)
    for name, shift in (("device", 16), ("stage", 8), ("modality", 0)):
        codes |= rows[name].astype(np.uint64) << np.uint64(shift)
    return codes


def age_histograms(allocations: Pair, at_ns: int) -> dict[tuple[int, int], NDArray[np.uint64]]:
    """(pid, device) → uint64 (2, 6): how many live allocations for GPUs, and bytes, by age."""
    keys, rows = allocations
    chosen = np.flatnonzero(np.isin(rows["kind"], FOR_GPUS))
    owner = keys["tgid"][chosen].astype(np.uint64) << np.uint64(8) | rows["device"][chosen]
    seconds = (np.float64(at_ns) - rows["since_ns"][chosen]) / 1e9
    slot = np.searchsorted(AGE_EDGES_SECONDS, seconds)
    owners, index = np.unique(owner, return_inverse=True)
    found = np.zeros((len(owners), 2, len(AGE_EDGES_SECONDS) + 1), np.uint64)
    np.add.at(found[:, 0, :], (index, slot), 1)
    np.add.at(found[:, 1, :], (index, slot), rows["bytes"][chosen])
    return {
        (int(code) >> 8, int(code) & 0xFF): table for code, table in zip(owners.tolist(), found, strict=True)
    }
