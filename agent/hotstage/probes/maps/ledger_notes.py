# SPDX-License-Identifier: Apache-2.0
"""Frees that programs could not follow themselves (bpf/include/ledger_notes.h): notes → entries taken out.

Only programs that bcc compiled write notes. What is looked for here is what libbpf's programs look for in the
kernel, and each entry is taken out there, by `ledger_take_out`, so that sums change by one atomic operation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.catalogue.spec import Memory

NOTE_DTYPE = np.dtype(
    [
        ("from", "<u8"),
        ("end", "<u8"),
        ("until_ns", "<u8"),
        ("missing_bytes", "<u8"),
        ("tgid", "<u4"),
        ("device", "<u4"),
        ("how", "<u4"),
        ("with_pools", "<u4"),
    ]
)
_POINTERS, _MAPPINGS, _ARRAYS = 0, 2, 4
"""`enum hotstage_memory_space`."""
_NOTES_AT_ONCE = 1024

Pair = tuple[NDArray[np.void], NDArray[np.void]]


class Note(IntEnum):
    """`enum hotstage_ledger_note`."""

    UNMAPPED = 0
    ENDED = 1


class TakenOut(IntEnum):
    """`enum hotstage_taken_out`."""

    FREED = 0
    IMPLICITLY = 1
    UNMATCHED = 2


class LedgerNotes:
    """`program` None: there are no notes."""

    def __init__(self, fd: int, program: int | None) -> None:
        self._fd = fd
        self._program = program

    def follow(self, allocations: Callable[[], Pair]) -> None:
        """Take out what the notes since the last call name. Raises OSError."""
        if self._program is None:
            return
        for _ in range(_NOTES_AT_ONCE):
            found = bpf.pop(self._fd, NOTE_DTYPE.itemsize)
            if found is None:
                return
            self._follow(np.frombuffer(found, NOTE_DTYPE)[0], allocations())

    def _follow(self, note: np.void, allocations: Pair) -> None:
        keys, rows = allocations
        is_unmap = note["how"] == Note.UNMAPPED
        chosen = np.flatnonzero((unmapped_by if is_unmap else ended_by)(note, keys, rows))
        taken_bytes = 0
        for at in chosen.tolist():
            how = TakenOut.FREED if is_unmap else TakenOut.IMPLICITLY
            if self._take_out(keys[at], int(rows["since_ns"][at]), how):
                taken_bytes += int(rows["bytes"][at])
        if is_unmap and taken_bytes < note["missing_bytes"]:
            key = np.zeros(1, keys.dtype)
            key["tgid"] = note["tgid"]
            self._take_out(key[0], 0, TakenOut.UNMATCHED)

    def _take_out(self, key: np.void, since_ns: int, how: TakenOut) -> bool:
        assert self._program is not None
        place = int(key["tgid"]) | int(key["space"]) << 32
        return bool(bpf.run(self._program, struct.pack("<4Q", int(key["address"]), place, since_ns, how)))


def unmapped_by(note: np.void, keys: NDArray[np.void], rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which allocations (A,) an unmap took, as `unmap_within` in ledger_vmm.h."""
    is_theirs = (keys["tgid"] == note["tgid"]) & (keys["space"] == _MAPPINGS)
    is_within = (keys["address"] >= note["from"]) & (keys["address"] < note["end"])
    return np.asarray(is_theirs & is_within & (rows["since_ns"] <= note["until_ns"]))


def ended_by(note: np.void, keys: NDArray[np.void], rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which allocations (A,) ended with a context, as `end_with_context` in ledger_ends.h."""
    is_theirs = (keys["tgid"] == note["tgid"]) & np.isin(keys["space"], (_POINTERS, _ARRAYS))
    is_of_device = rows["device"] == note["device"]
    is_of_context = rows["context"] == note["from"] if note["from"] else is_of_device
    has_ended = np.where(rows["kind"] == Memory.POOL, is_of_device & bool(note["with_pools"]), is_of_context)
    return np.asarray(is_theirs & has_ended & (rows["since_ns"] <= note["until_ns"]))
