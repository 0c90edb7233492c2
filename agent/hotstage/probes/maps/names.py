# SPDX-License-Identifier: Apache-2.0
"""Names of launched kernels and stacks of slow or failing calls: `bpf/include/names_abi.h`, from user space.

Kernels are read when somebody asks, stacks by one thread of their own. Whatever is in here a stranger chose.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Collection, Mapping
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import distinct
from hotstage.probes import bpf
from hotstage.probes.maps.layout import GRAPH_HANDLE, EventKind
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.maps.ring import RingReader

STACK_FRAMES = 24
LAUNCH_GAP = 16
"""One launch in so many is looked at where nobody says otherwise."""
NO_KERNEL = 0
"""`name_hash` of what has no entry of its own."""


class NameSource(IntEnum):
    """Where a kernel's name is from; as `enum hotstage_name_source` in bpf/include/names_abi.h."""

    LOOKED_UP = 0
    REGISTERED = 1
    OF_SYMBOL = 2


GRAPHS = GRAPH_HANDLE
"""`name_hash` of all graphs of a process."""
KERNEL_KEY_DTYPE = np.dtype([("name_hash", "<u8"), ("tgid", "<u4"), ("pad", "<u4")])
KERNEL_STATE_DTYPE = np.dtype([("samples", "<u8"), ("held", "<u4"), ("source", "<u4"), ("name", "S240")])
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
KERNEL_NAME = 240
"""Bytes of a name, the zero at its end among them."""
_ONE_DTYPE = np.dtype([("one", "<u8")])
_FNV_OFFSET, _FNV_PRIME, _HASHED_BYTES = 0xCBF29CE484222325, 0x100000001B3, 6 * 47
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
        self._kernels_fd, self._unnamed_fd = fds["kernels"], fds["unnamed_kernels"]
        self._unnamed = HashReader(fds["unnamed_kernels"], KERNEL_KEY_DTYPE, _ONE_DTYPE)
        self._symbols: dict[tuple[int, int], bytes] = {}
        self._stacks = RingReader(fds["call_stacks"])
        self._lock = threading.Lock()
        self.launch_gap = 0
        self.takes_stacks = False

    def prepare(self, *, launch_gap: int, takes_stacks: bool) -> None:
        """Before anything is attached. `launch_gap` 1: each launch is looked at; 0: none is."""
        row = np.zeros(1, NAMES_SETTINGS_DTYPE)
        row["launch_gap"], row["takes_stacks"] = launch_gap, takes_stacks
        row["kernels_per_process"] = max(1, self._kernels.capacity // _PROCESS_SHARE)
        bpf.update(self._settings_fd, struct.pack("<I", 0), row.tobytes())
        self.launch_gap, self.takes_stacks = launch_gap, takes_stacks

    def kernels(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """KERNEL_KEY_DTYPE and KERNEL_STATE_DTYPE (N,), copies, as of now; of a host function with the name
        that was found for it since.
        """
        with self._lock:
            keys, states = (rows.copy() for rows in self._kernels.read())
            for row in np.flatnonzero((states["source"] == NameSource.OF_SYMBOL) & (states["name"] == b"")):
                key = int(keys["tgid"][row]), int(keys["name_hash"][row])
                states["name"][row] = self._symbols.get(key, b"")
        return keys, states

    def take_unnamed(self, most_processes: int) -> NDArray[np.void]:
        """KERNEL_KEY_DTYPE (N,) of launched host functions without a name, of so many processes at most."""
        keys = self._unnamed.read()[0].copy()
        chosen = distinct(keys["tgid"])[:most_processes]
        return keys[np.isin(keys["tgid"], chosen)]

    def drop_unnamed(self, pid: int, addresses: Collection[int]) -> None:
        """These are looked for."""
        rows = np.zeros(len(addresses), KERNEL_KEY_DTYPE)
        rows["tgid"], rows["name_hash"] = pid, list(addresses)
        self._unnamed.delete(rows)

    def keep_symbol(self, pid: int, address: int, name: bytes) -> int:
        """A host function's name; the hash under which its launches are counted from the next decision on."""
        name_hash = hash_of_name(name)
        row = np.zeros(1, KERNEL_STATE_DTYPE)
        row["source"], row["name"] = NameSource.OF_SYMBOL, name[: KERNEL_NAME - 1]
        key = struct.pack("<QII", name_hash, pid, 0)
        if bpf.lookup(self._kernels_fd, key, row.dtype.itemsize) is None:
            with contextlib.suppress(OSError):  # no room: its launches count as unnamed
                bpf.update(self._kernels_fd, key, row.tobytes())
        with self._lock:
            self._symbols[pid, address] = name[: KERNEL_NAME - 1]
        return name_hash

    def drain_stacks(self) -> NDArray[np.void]:
        """CALL_STACK_DTYPE (S,), what came since the last call; each is delivered once."""
        found = self._stacks.drain(_STACK_KINDS)
        return np.concatenate([found[kind] for kind in _STACK_KINDS])

    def forget(self, pids: Collection[int]) -> None:
        """Take out the kernels of processes that have gone."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        with self._lock:
            for reader in (self._kernels, self._unnamed):
                keys = reader.read()[0].copy()
                reader.delete(keys[np.isin(keys["tgid"], gone)])
            for key in [key for key in self._symbols if key[0] in pids]:
                del self._symbols[key]

    def close(self) -> None:
        self._stacks.close()


def hash_of_name(name: bytes) -> int:
    """As `read_name` of bpf/include/inference.h makes it: FNV-1a of what is read of a name."""
    found = _FNV_OFFSET
    for byte in name[:_HASHED_BYTES]:
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return found
