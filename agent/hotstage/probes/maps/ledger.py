# SPDX-License-Identifier: Apache-2.0
"""The memory ledger's maps: dtypes equal to bpf/include/ledger_abi.h, read in batches; what they mean is not
decided here.

Any thread may call; `_lock` guards the read buffers. Nothing looks at /proc: callers say who is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import DEVICE_KEY_DTYPE, FUNCTION_KEY_DTYPE
from hotstage.probes.maps.ledger_notes import LedgerNotes
from hotstage.probes.maps.reader import HashReader

ALLOCATION_KEY_DTYPE = np.dtype([("address", "<u8"), ("tgid", "<u4"), ("space", "<u4")])
ALLOCATION_DTYPE = np.dtype(
    [
        ("bytes", "<u8"),
        ("since_ns", "<u8"),
        ("context", "<u8"),
        ("handle", "<u8"),
        ("kind", "u1"),
        ("device", "u1"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("flags", "u1"),
        ("pad", "u1", (3,)),
    ]
)
MEMORY_KEY_DTYPE = np.dtype([("tgid", "<u4"), ("kind", "u1"), ("device", "u1"), ("pad", "u1", (2,))])
MEMORY_SUM_DTYPE = np.dtype(
    [
        (name, "<u8")
        for name in (
            "live_bytes",
            "live_count",
            "high_bytes",
            "allocated_bytes",
            "allocated_count",
            "freed_bytes",
            "freed_count",
            "implicit_bytes",
            "implicit_count",
            "untracked_bytes",
            "untracked_count",
            "unmatched_frees",
            "failed_count",
            "failed_bytes",
            "failed_ns",
            "refilled_count",
            "last_freed_bytes",
            "unsized_count",
        )
    ]
)
MEMORY_STAGE_KEY_DTYPE = np.dtype(
    [("tgid", "<u4"), ("device", "u1"), ("stage", "u1"), ("modality", "u1"), ("pad", "u1")]
)
MEMORY_STAGE_DTYPE = np.dtype(
    [("live_bytes", "<u8"), ("high_bytes", "<u8"), ("live_count", "<u8"), ("allocated_bytes", "<u8")]
)
STAGE_DTYPE = np.dtype(MEMORY_STAGE_KEY_DTYPE.descr + MEMORY_STAGE_DTYPE.descr)
MEMORY_POOL_DTYPE = np.dtype(
    [
        ("reserved_bytes", "<u8"),
        ("reserved_high_bytes", "<u8"),
        ("used_bytes", "<u8"),
        ("used_high_bytes", "<u8"),
        ("reserved_ns", "<u8"),
        ("used_ns", "<u8"),
        ("device", "<u4"),
        ("pad", "<u4"),
    ]
)
PRIMARY_CONTEXT_DTYPE = np.dtype([("context", "<u8"), ("holds", "<u8"), ("kinds_before", "<u8")])
KINDS_BEFORE_A_CONTEXT = 3
"""Kinds of calls that a process makes up to its first primary context: the device's UUID, the hold itself."""

Pair = tuple[NDArray[np.void], NDArray[np.void]]
"""Keys and values, (N,) each, in the same order; copies."""


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """All maps as of one moment, but for calls that were in between two of their updates.

    allocations: ALLOCATION_KEY_DTYPE and ALLOCATION_DTYPE, what is live now.
    sums:        MEMORY_KEY_DTYPE and MEMORY_SUM_DTYPE, cumulative, by process, kind and device.
    stages:      MEMORY_STAGE_KEY_DTYPE and MEMORY_STAGE_DTYPE, by process, device, stage and modality.
    pools:       FUNCTION_KEY_DTYPE and MEMORY_POOL_DTYPE, what processes asked of their pools.
    begun:       processes whose first context was seen being made: before that nothing can be allocated.
    """

    allocations: Pair
    sums: Pair
    stages: Pair
    pools: Pair
    begun: frozenset[int]


class LedgerMaps:
    """`allocations` is read again only when a sum has moved since the last read. `take_out` is the program
    that follows notes (`ledger_notes.py`), None where the programs need none.
    """

    def __init__(self, fds: Mapping[str, int], take_out: int | None = None) -> None:
        self._lock = threading.Lock()
        self._allocations = HashReader(fds["allocations"], ALLOCATION_KEY_DTYPE, ALLOCATION_DTYPE)
        self._sums = HashReader(fds["memory_sums"], MEMORY_KEY_DTYPE, MEMORY_SUM_DTYPE)
        self._stages = HashReader(fds["memory_stages"], MEMORY_STAGE_KEY_DTYPE, MEMORY_STAGE_DTYPE)
        self._pools = HashReader(fds["memory_pools"], FUNCTION_KEY_DTYPE, MEMORY_POOL_DTYPE)
        self._primaries = HashReader(fds["primary_contexts"], DEVICE_KEY_DTYPE, PRIMARY_CONTEXT_DTYPE)
        self._notes = LedgerNotes(fds["ledger_notes"], take_out)
        self._moves = b""
        self._last: Pair = np.zeros(0, ALLOCATION_KEY_DTYPE), np.zeros(0, ALLOCATION_DTYPE)

    @property
    def capacity(self) -> int:
        """Entries of `allocations`."""
        return self._allocations.capacity

    @property
    def primary_capacity(self) -> int:
        """Entries of `primary_contexts`."""
        return self._primaries.capacity

    @property
    def pool_capacity(self) -> int:
        """Entries of `memory_pools`."""
        return self._pools.capacity

    def read(self) -> LedgerRows:
        """Everything, as of now. Raises OSError."""
        with self._lock:
            self._notes.follow(self._allocations.read)
            sums, stages, pools = (
                _copied(reader.read()) for reader in (self._sums, self._stages, self._pools)
            )
            moves = _moves(sums)
            if moves != self._moves:
                self._last = _copied(self._allocations.read())
                self._moves = moves
            return LedgerRows(self._last, sums, stages, pools, _begun(*self._primaries.read()))

    def stages(self) -> NDArray[np.void]:
        """STAGE_DTYPE (N,): keys and values as one row each, as of now. Raises OSError."""
        with self._lock:
            bytes_of_rows = [
                each.view(np.uint8).reshape(len(each), each.itemsize) for each in self._stages.read()
            ]
            return np.concatenate(bytes_of_rows, axis=1).reshape(-1).view(STAGE_DTYPE)

    def forget(self, pids: Collection[int]) -> Pair:
        """Take out all of processes that have gone; their last sums, whose live bytes went with them."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        with self._lock:
            self._notes.follow(self._allocations.read)
            keys, sums = _copied(self._sums.read())
            is_theirs = np.isin(keys["tgid"], gone)
            for reader in (self._allocations, self._sums, self._stages, self._pools, self._primaries):
                found: NDArray[np.void] = reader.read()[0].copy()
                reader.delete(found[np.isin(found["tgid"], gone)])
            return keys[is_theirs], sums[is_theirs]


def _begun(keys: NDArray[np.void], contexts: NDArray[np.void]) -> frozenset[int]:
    return frozenset(keys["tgid"][contexts["kinds_before"] <= KINDS_BEFORE_A_CONTEXT].tolist())


def _copied(rows: Pair) -> Pair:
    """Rows of fields are dear to copy, the same bytes are not."""
    keys, values = (each.view(np.uint8).copy().view(each.dtype) for each in rows)
    return keys, values


def _moves(sums: Pair) -> bytes:
    """Differs whenever an allocation came or went, of whichever process."""
    keys, values = sums
    order = np.argsort(keys.view("<u8"))
    return b"".join(
        (
            keys[order].tobytes(),
            *(values[name][order].tobytes() for name in ("allocated_count", "live_count")),
        )
    )
