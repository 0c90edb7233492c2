# SPDX-License-Identifier: Apache-2.0
"""The histograms' memory, mapped read-only: slots are copied when their keys moved, recycled when these go.

Bucket arithmetic of scale 3 lives here too; quantiles and exports do not.
"""

from __future__ import annotations

import mmap
import struct

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import distinct
from hotstage.probes import bpf
from hotstage.probes.maps.layout import (
    HISTOGRAM_FIRST_EXPONENT,
    HISTOGRAM_SCALE,
    HISTOGRAM_SLOTS,
)


class HistogramSlots:
    """`call_histograms` and the queue of its free slots; slot 0 means none and is never handed out."""

    def __init__(self, histograms_fd: int, free_fd: int) -> None:
        self._fd, self._free_fd = histograms_fd, free_fd
        slots = bpf.map_info(histograms_fd).max_entries
        self._pages = mmap.mmap(
            histograms_fd, _page_rounded(slots * HISTOGRAM_SLOTS * 8), prot=mmap.PROT_READ
        )
        self._mapped: NDArray[np.uint64] | None = np.frombuffer(
            self._pages, dtype="<u8", count=slots * HISTOGRAM_SLOTS
        ).reshape(slots, HISTOGRAM_SLOTS)
        self.copied = np.zeros((slots, HISTOGRAM_SLOTS), dtype=np.uint64)
        """uint64 (slots, 242): as of each slot's last refresh; untouched slots take no memory."""

    def fill_queue(self) -> None:
        """Offer every slot but 0; once, after load."""
        for slot in range(1, len(self.copied)):
            self._offer(slot)

    def refresh(self, slots: NDArray[np.uint32]) -> None:
        """Copy these slots as they are now; 0 among them is ignored."""
        if self._mapped is None:
            raise ValueError("the histograms are closed")
        wanted = slots[slots != 0]
        self.copied[wanted] = self._mapped[wanted]

    def recycle(self, slots: NDArray[np.uint32]) -> None:
        """Zero these slots and offer them again. Their keys must be gone from `call_stats` before."""
        blank = bytes(HISTOGRAM_SLOTS * 8)
        for slot in distinct(slots[slots != 0]).tolist():
            bpf.update(self._fd, struct.pack("<I", slot), blank)
            self.copied[slot] = 0
            self._offer(slot)

    def close(self) -> None:
        """Unmap."""
        self._mapped = None
        self._pages.close()

    def _offer(self, slot: int) -> None:
        bpf.update(self._free_fd, None, struct.pack("<I", slot))


def slot_upper_seconds() -> NDArray[np.float64]:
    """Upper edge of each slot in seconds, float64 (242,): 2^-22 for the underflow, inf for the overflow."""
    per_octave = 1 << HISTOGRAM_SCALE
    edges = 2.0 ** (HISTOGRAM_FIRST_EXPONENT + np.arange(HISTOGRAM_SLOTS) / per_octave)
    edges[-1] = np.inf
    return edges


def _page_rounded(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
