# SPDX-License-Identifier: Apache-2.0
"""Draining a BPF ring buffer through its memory mapping: no callback, no wake-up, copies as numpy rows.

It knows the ring's layout, not what records mean. Those that the kernel lost are counted in `losses`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import distinct
from hotstage.probes.bpf import map_info

_PAGE = mmap.PAGESIZE
_HEADER_BYTES = 8
_BUSY = 1 << 31
_DISCARDED = 1 << 30
_LENGTH = _DISCARDED - 1
_WORD = struct.Struct("<I")


class RingReader:
    """One consumer of one ring. Not for two threads at once."""

    def __init__(self, fd: int, size: int | None = None) -> None:
        """`size` is the ring's bytes, a power of two; the kernel is asked when it is not given."""
        self._size = map_info(fd).max_entries if size is None else size
        self._consumer = mmap.mmap(fd, _PAGE, offset=0)
        self._producer = mmap.mmap(
            fd, _PAGE + 2 * self._size, prot=mmap.PROT_READ, offset=_PAGE
        )  # the data is mapped twice in a row: no record wraps
        self._data: NDArray[np.uint8] | None = np.frombuffer(self._producer, dtype=np.uint8, offset=_PAGE)
        self._is_held_up = False
        self._nothing: tuple[Mapping[int, np.dtype[np.void]], dict[int, NDArray[np.void]]] | None = None

    def drain(self, dtypes: Mapping[int, np.dtype[np.void]]) -> dict[int, NDArray[np.void]]:
        """All complete records, by their first word (the kind), in order; empty arrays for kinds without any.

        A record of another kind, or shorter than its kind's dtype, is skipped. Nothing is nearly always what
        there is of most rings: it is made once for each mapping of dtypes.
        """
        if self._data is None:
            raise ValueError("the ring is closed")
        begin, end = _position(self._consumer), _position(self._producer)
        if begin == end:
            self._is_held_up = False
            if self._nothing is None or self._nothing[0] is not dtypes:
                self._nothing = dtypes, {kind: np.empty(0, dtype) for kind, dtype in dtypes.items()}
            return self._nothing[1]
        pieces: dict[int, list[NDArray[np.uint8]]] = {kind: [] for kind in dtypes}
        at = begin
        while at < end:
            run = self._run_at(at, end)
            if run is None:
                break
            rows, stride, length = run
            _sort_by_kind(rows, length, dtypes, pieces)
            at += len(rows) * stride
        # Every piece is a copy: the kernel may write where they were from now on.
        struct.pack_into("<Q", self._consumer, 0, at)
        self._is_held_up = at == begin < end
        return {kind: _in_one(found, dtypes[kind]) for kind, found in pieces.items()}

    def is_stuck(self) -> bool:
        """Whether it is more than half full and the last drain took nothing of what was there. Of a flood
        something is taken each time, and what finds no place is counted as lost.
        """
        return self._is_held_up and 2 * self.pending_bytes() > self._size

    def pending_bytes(self) -> int:
        """Bytes between what was produced and what was read."""
        return _position(self._producer) - _position(self._consumer)

    def close(self) -> None:
        """Unmap; the map itself lives on."""
        self._data = None
        self._consumer.close()
        self._producer.close()

    def _run_at(self, at: int, end: int) -> tuple[NDArray[np.uint8], int, int] | None:
        """Records of one length that follow each other: (records, stride) bytes, the stride and their length.

        None when the first one is still being written.
        """
        data = self._data
        if data is None:
            return None
        start = at & (self._size - 1)
        header: int = _WORD.unpack_from(self._producer, _PAGE + start)[0]
        if header & _BUSY:
            return None
        length = header & _LENGTH
        stride = (_HEADER_BYTES + length + 7) & ~7
        count = min(end - at, self._size) // stride
        rows = data[start : start + count * stride].reshape(count, stride)
        headers = rows[:, :4].copy().view("<u4")[:, 0]
        same = headers & ~np.uint32(_DISCARDED) == length
        run = count if same.all() else int(np.argmin(same))
        return rows[:run], stride, length


def _sort_by_kind(
    rows: NDArray[np.uint8],
    length: int,
    dtypes: Mapping[int, np.dtype[np.void]],
    pieces: dict[int, list[NDArray[np.uint8]]],
) -> None:
    """Copies of the payloads, (N, itemsize) bytes, to the pieces of their kind. Mostly all are of one."""
    if length < 4 or not len(rows):
        return
    heads = rows[:, : _HEADER_BYTES + 4].copy()
    is_kept = heads[:, 3] & (_DISCARDED >> 24) == 0
    kinds = heads[:, _HEADER_BYTES:].copy().view("<u4")[:, 0]
    present = kinds[:1] if (kinds == kinds[0]).all() else distinct(kinds)
    for kind in present.tolist():
        width = dtypes[kind].itemsize if kind in dtypes else length + 1
        if length < width:
            continue
        chosen = is_kept & (kinds == kind)
        payload = rows[:, _HEADER_BYTES : _HEADER_BYTES + width]
        pieces[kind].append(payload.copy() if chosen.all() else payload[chosen])


def _in_one(pieces: list[NDArray[np.uint8]], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Joined as plain bytes: rows of fields are dear to move."""
    if not pieces:
        return np.empty(0, dtype)
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return whole.reshape(-1).view(dtype)


def _position(page: mmap.mmap) -> int:
    position: int = struct.unpack_from("<Q", page, 0)[0]
    return position
