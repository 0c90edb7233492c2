# SPDX-License-Identifier: Apache-2.0
"""Names of launched kernels and stacks of slow or failing calls: `bpf/include/names_abi.h`, from user space.

Kernels are read when somebody asks, stacks by one thread of their own. Whatever is in here a stranger chose.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps.layout import GRAPH_HANDLE, EventKind
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.maps.ring import RingReader

STACK_FRAMES = 24
LAUNCH_GAP = 16
"""One launch in so many is looked at where nobody says otherwise."""
NO_KERNEL = 0
"""`name_hash` of what has no entry of its own."""
GRAPHS = GRAPH_HANDLE
"""`name_hash` of all graphs of a process."""
KERNEL_KEY_DTYPE = np.dtype([("name_hash", "<u8"), ("tgid", "<u4"), ("pad", "<u4")])
KERNEL_STATE_DTYPE = np.dtype([("samples", "<u8"), ("held", "<u4"), ("pad", "<u4"), ("name", "S240")])
NAMES_SETTINGS_DTYPE = np.dtype(
    [("launch_gap", "<u4"), ("kernels_per_process", "<u4"), ("takes_stacks", "<u4"), ("pad", "<u4")]
)
CALL_STACK_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("result", "<i4"),
        ("ended_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("call", "<u2"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("frame_count", "<u4"),
        ("frames", "<u8", (STACK_FRAMES,)),
    ]
)
_PROCESS_SHARE = 4
_STACK_KINDS: dict[int, np.dtype[np.void]] = {
    EventKind.CALL_SLOW: CALL_STACK_DTYPE,
    EventKind.CALL_ERROR: CALL_STACK_DTYPE,
}


class NamesMaps:
    """`kernels` and `call_stacks`. Any thread may call; `drain_stacks` one at a time."""

    def __init__(self, fds: Mapping[str, int]) -> None:
        self._settings_fd = fds["names_settings"]
        self._kernels = HashReader(fds["kernels"], KERNEL_KEY_DTYPE, KERNEL_STATE_DTYPE)
        self._stacks = RingReader(fds["call_stacks"])
        self._lock = threading.Lock()
        self.launch_gap = 0

    def prepare(self, *, launch_gap: int, takes_stacks: bool) -> None:
        """Before anything is attached. `launch_gap` 1: each launch is looked at; 0: none is."""
        row = np.zeros(1, NAMES_SETTINGS_DTYPE)
        row["launch_gap"], row["takes_stacks"] = launch_gap, takes_stacks
        row["kernels_per_process"] = max(1, self._kernels.capacity // _PROCESS_SHARE)
        bpf.update(self._settings_fd, struct.pack("<I", 0), row.tobytes())
        self.launch_gap = launch_gap

    def kernels(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """KERNEL_KEY_DTYPE and KERNEL_STATE_DTYPE (N,), copies, as of now."""
        with self._lock:
            keys, states = self._kernels.read()
            return keys.copy(), states.copy()

    def drain_stacks(self) -> NDArray[np.void]:
        """CALL_STACK_DTYPE (S,), what came since the last call; each is delivered once."""
        found = self._stacks.drain(_STACK_KINDS)
        return np.concatenate([found[kind] for kind in _STACK_KINDS])

    def forget(self, pids: Collection[int]) -> None:
        """Take out the kernels of processes that have gone."""
        keys, _ = self.kernels()
        self._kernels.delete(keys[np.isin(keys["tgid"], np.fromiter(pids, np.uint32, len(pids)))])

    def close(self) -> None:
        self._stacks.close()
