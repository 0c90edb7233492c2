# SPDX-License-Identifier: Apache-2.0
"""Live allocations by process, kind, stage, age and page. Pure functions of arrays; no map is read here.

An allocation is sorted by its age once and by its page once; what it belongs to is a small number from then
on, and figures are sums by that number. 10,000 of them take a millisecond.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import grouped
from hotstage.probes.maps.ledger import Pair
from hotstage.probes.memory_sample import (
    AGE_EDGES_SECONDS,
    FOR_GPUS,
    MOST_BYTES,
    PAGE_BYTES,
    PAGE_ROW_DTYPE,
    POINTERS,
)

_PAGE_BITS = np.uint64(PAGE_BYTES.bit_length() - 1)
_ARE_FOR_GPUS, _ARE_POINTERS = (
    np.isin(np.arange(256), [int(kind) for kind in kinds]) for kinds in (FOR_GPUS, POINTERS)
)
_OWNER_SHIFT = np.uint64(64 - PAGE_BYTES.bit_length() + 1)
"""Above any page's number."""


class AgeTable:
    """Oldest and median of groups of live allocations."""

    def __init__(
        self, codes: NDArray[np.uint64], groups: NDArray[np.integer], since_ns: NDArray[np.uint64]
    ) -> None:
        """`codes` (G,) ascending name the groups; `groups` (A,) is whose each allocation is, the oldest
        allocation first, and `since_ns` (A,) since when.
        """
        counts = np.bincount(groups, minlength=len(codes))
        first = np.cumsum(counts) - counts
        in_order = since_ns[np.argsort(groups, kind="stable")]
        self._codes = codes
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


class AllocationGroups:
    """Of one read of the ledger. `by_kind` and `by_stage` go by `kind_codes` and `stage_codes`, the latter
    of memory for GPUs alone; `pages` are PAGE_ROW_DTYPE rows.
    """

    def __init__(self, allocations: Pair) -> None:
        keys, rows = allocations
        order = np.argsort(rows["since_ns"])
        since_ns, sizes = rows["since_ns"][order], rows["bytes"][order]
        codes = (keys["tgid"].astype(np.uint64) << np.uint64(32) | _places(rows))[order]
        # Few differ in process, kind, device, stage or modality: all below is decided once for each of these.
        sorts, group_of = grouped(codes)
        sort_of = _small(group_of, len(sorts))
        tgid, kind, device, stage, modality = _parts(sorts)
        self.by_kind = _table(_code(tgid, kind, device), sort_of, since_ns)
        self._owners, owner_of = grouped(_code(tgid, device))
        is_pointer = _ARE_POINTERS[kind][sort_of] & (sizes > 0) & (sizes <= MOST_BYTES)
        self.pages = _page_rows(
            self._owners,
            owner_of.astype(np.uint64)[sort_of[is_pointer]],
            keys["address"][order][is_pointer],
            sizes[is_pointer],
        )
        is_for_gpus = _ARE_FOR_GPUS[kind][sort_of]
        chosen, self._since_ns, self._bytes = (each[is_for_gpus] for each in (sort_of, since_ns, sizes))
        self.by_stage = _table(_code(tgid, device, stage, modality), chosen, self._since_ns)
        self._owner = owner_of[chosen]

    def ages(self, at_ns: int) -> dict[tuple[int, int], NDArray[np.uint64]]:
        """(pid, device) → uint64 (2, 6): how many live allocations for GPUs, and bytes, by age; without those
        who claim more bytes than any GPU has.
        """
        slots = len(AGE_EDGES_SECONDS) + 1
        limits = [max(0, at_ns - int(edge * 1e9)) for edge in reversed(AGE_EDGES_SECONDS)]
        count = len(self._since_ns)
        older = np.searchsorted(self._since_ns, np.array(limits, np.uint64))
        older = np.concatenate([[0], older, [count]])
        slot = np.repeat(np.arange(slots - 1, -1, -1), np.diff(older))
        at = self._owner * slots + slot
        shape = (len(self._owners), slots)
        counts = np.bincount(at, minlength=shape[0] * slots).reshape(shape)
        sizes = np.bincount(at, self._bytes, shape[0] * slots).reshape(shape)  # < 2^53
        return {
            (int(code) >> 8, int(code) & 0xFF): np.stack([counts[row], sizes[row]]).astype(np.uint64)
            for row, code in enumerate(self._owners.tolist())
            if counts[row].any() and sizes[row].sum() <= MOST_BYTES
        }


def kind_codes(tgid: NDArray[np.uint32], rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Process, kind and device as one number."""
    return _code(tgid, rows["kind"], rows["device"])


def stage_codes(tgid: NDArray[np.uint32], rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Process, device, stage and modality as one number."""
    return _code(tgid, rows["device"], rows["stage"], rows["modality"])


def _code(first: NDArray[np.generic], *bytes_after: NDArray[np.generic]) -> NDArray[np.uint64]:
    code: NDArray[np.uint64] = first.astype(np.uint64)
    for part in bytes_after:
        code = code << np.uint64(8) | part.astype(np.uint64)
    return code


def _places(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Kind, device, stage and modality, which stand beside each other, uint64 (A,)."""
    start = rows.dtype.fields["kind"][1] if rows.dtype.fields else 0
    words: NDArray[np.uint32] = rows.view("<u4").reshape(len(rows), rows.dtype.itemsize // 4)
    return words[:, start // 4].astype(np.uint64)


def _parts(sorts: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], ...]:
    shifts = (8 * np.arange(4)).astype(np.uint64)
    return sorts >> np.uint64(32), *(sorts[None, :] >> shifts[:, None] & np.uint64(0xFF))


def _small(groups: NDArray[np.intp], count: int) -> NDArray[np.integer]:
    """Numbers of two bytes are sorted by counting."""
    return groups.astype(np.uint16) if count <= 1 << 16 else groups


def _table(codes: NDArray[np.uint64], sort_of: NDArray[np.integer], since_ns: NDArray[np.uint64]) -> AgeTable:
    """`codes` (S,) of each sort of allocation, `sort_of` (A,) and `since_ns` (A,), the oldest first."""
    there = np.bincount(sort_of, minlength=len(codes)) > 0
    groups, group_of = grouped(codes[there])
    place = np.zeros(len(codes), sort_of.dtype)
    place[there] = group_of
    return AgeTable(groups, place[sort_of], since_ns)


def _page_rows(
    owners: NDArray[np.uint64],
    owner: NDArray[np.uint64],
    address: NDArray[np.uint64],
    size: NDArray[np.uint64],
) -> NDArray[np.void]:
    """PAGE_ROW_DTYPE by owner: bytes of live pointers, and of the pages that they lie in, each once.

    From the i-th begin on to the next one, what lies up to the i-th end is taken: begins and ends may be
    sorted apart.
    """
    begins = np.sort(owner << _OWNER_SHIFT | address >> _PAGE_BITS)
    ends = np.sort(owner << _OWNER_SHIFT | address + size - np.uint64(1) >> _PAGE_BITS)
    pages = ends + np.uint64(1)
    pages[:-1] = np.minimum(pages[:-1], begins[1:])
    pages -= begins
    whose = begins >> _OWNER_SHIFT
    starts = np.flatnonzero(np.diff(whose, prepend=np.uint64(0xFFFF_FFFF)))
    at = whose[starts].astype(np.intp)
    found = np.zeros(len(starts), PAGE_ROW_DTYPE)
    found["tgid"], found["device"] = owners[at] >> np.uint64(8), owners[at] & np.uint64(0xFF)
    found["live_bytes"] = np.bincount(owner.astype(np.intp), size, len(owners))[at]  # < 2^53
    if len(starts):
        found["page_bytes"] = np.add.reduceat(pages, starts) << _PAGE_BITS
    return found
