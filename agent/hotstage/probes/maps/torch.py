# SPDX-License-Identifier: Apache-2.0
"""PyTorch's allocator as the kernel keeps it: blocks given out, sums by device (bpf/include/torch_abi.h)."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps import layout
from hotstage.probes.maps.reader import HashReader

BLOCK_KEY_DTYPE = np.dtype([("address", "<u8"), ("tgid", "<u4"), ("pad", "<u4")])
BLOCK_STATE_DTYPE = np.dtype(
    [
        ("bytes", "<u8"),
        ("requested_bytes", "<u8"),
        ("since_ns", "<u8"),
        ("device", "<u4"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("flags", "u1"),
        ("pad", "u1"),
    ]
)
DEVICE_STATE_DTYPE = np.dtype(
    [
        (name, "<u8")
        for name in (
            "allocated_bytes",
            "reserved_bytes",
            "updated_ns",
            "base_bytes",
            "base_reserved_bytes",
            "block_bytes",
            "block_count",
            "allocated_total",
            "freed_total",
            "unmatched_frees",
            "out_of_memory_total",
            "out_of_memory_ns",
            "out_of_memory_requested_bytes",
            "out_of_memory_allocated_bytes",
            "out_of_memory_reserved_bytes",
        )
    ]
)
SEGMENT_STATE_DTYPE = np.dtype([("bytes", "<u8"), ("since_ns", "<u8"), ("device", "<u4"), ("space", "<u4")])
BLOCK_DTYPE = np.dtype([*BLOCK_KEY_DTYPE.descr[:2], *BLOCK_STATE_DTYPE.descr[:-1]])
SEGMENT_DTYPE = np.dtype([*BLOCK_KEY_DTYPE.descr[:2], *SEGMENT_STATE_DTYPE.descr])
DEVICE_DTYPE = np.dtype([*layout.DEVICE_KEY_DTYPE.descr, *DEVICE_STATE_DTYPE.descr])


class TorchMaps:
    """`torch_blocks`, `torch_segments`, `torch_devices`. Any thread may call; `_lock` guards the buffers."""

    def __init__(self, fds: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._blocks = HashReader(fds["torch_blocks"], BLOCK_KEY_DTYPE, BLOCK_STATE_DTYPE)
        self._segments = HashReader(fds["torch_segments"], BLOCK_KEY_DTYPE, SEGMENT_STATE_DTYPE)
        self._devices = HashReader(fds["torch_devices"], layout.DEVICE_KEY_DTYPE, DEVICE_STATE_DTYPE)

    @property
    def capacity(self) -> int:
        """Blocks that there is room for."""
        return self._blocks.capacity

    def blocks(self) -> NDArray[np.void]:
        """BLOCK_DTYPE (N,), what allocators have given out, of all processes; a copy."""
        with self._lock:
            return _rows(*self._blocks.read(), BLOCK_DTYPE)

    def segments(self) -> NDArray[np.void]:
        """SEGMENT_DTYPE (N,), allocations that blocks began at, also those that have ended since; a copy."""
        with self._lock:
            return _rows(*self._segments.read(), SEGMENT_DTYPE)

    def drop_segments(self, ended: NDArray[np.void]) -> None:
        """Take out segments (SEGMENT_DTYPE) that the ledger does not have any more."""
        keys = np.zeros(len(ended), BLOCK_KEY_DTYPE)
        keys["address"], keys["tgid"] = ended["address"], ended["tgid"]
        with self._lock:
            self._segments.delete(keys)

    def devices(self) -> NDArray[np.void]:
        """DEVICE_DTYPE (N,), sums by (process, ordinal); a copy."""
        with self._lock:
            return _rows(*self._devices.read(), DEVICE_DTYPE)

    def forget(self, pids: Collection[int]) -> None:
        """Take out all that there is of processes that have gone."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        with self._lock:
            for reader in (self._blocks, self._segments, self._devices):
                keys = reader.read()[0].copy()
                reader.delete(keys[np.isin(keys["tgid"], gone)])


def _rows(keys: NDArray[np.void], values: NDArray[np.void], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    rows = np.zeros(len(keys), dtype)
    for name in dtype.names or ():
        source = keys if name in (keys.dtype.names or ()) else values
        rows[name] = source[name]
    return rows
