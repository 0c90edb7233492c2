# SPDX-License-Identifier: Apache-2.0
"""NCCL's communicators as the kernel keeps them: rank, size, and how far each has come.

All ranks of a communicator make the same collectives in the same order, so `calls` is a sequence number that
ranks can be compared by while one of them hangs. Works on descriptors; it never looks at /proc.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps.layout import NO_DEVICE
from hotstage.probes.maps.reader import HashReader

NO_RANK = 2**32 - 1
"""Of a communicator: nobody said as which rank of how many it was made."""
COMMUNICATOR_KEY_DTYPE = np.dtype([("handle", "<u8"), ("tgid", "<u4"), ("pad", "<u4")])
COMMUNICATOR_DTYPE = np.dtype(
    [
        ("first_ns", "<u8"),
        ("last_ns", "<u8"),
        ("calls", "<u8"),
        ("bytes", "<u8"),
        ("rank", "<u4"),
        ("size", "<u4"),
        ("last_tid", "<u4"),
        ("last_call", "<u2"),
        ("device", "u1"),
        ("pad", "u1"),
    ]
)
PENDING_KEY_DTYPE = np.dtype([("tid", "<u4"), ("index", "<u4")])
PENDING_DTYPE = np.dtype([("address", "<u8"), ("tgid", "<u4"), ("place", "<u4")])
"""A communicator that is made within a group, at whose end it stands."""

_TGID_DTYPE = np.dtype([("tgid", "<u4")])
_SEEN_DTYPE = np.dtype([("seen", "<u8")])


@dataclass(frozen=True, slots=True)
class Communicator:
    """One ncclComm_t of one process.

    `rank` and `size` are None where nobody said them: it was made before the attach or by a split, and the
    process has not asked NCCL since. `device` is the ordinal that it was told when it asked, else None.
    `calls` are entered ones, `size_bytes` what this rank passed to them. Times are CLOCK_MONOTONIC ns,
    `last_ns` None before the first call.
    """

    pid: int
    handle: int
    rank: int | None
    size: int | None
    device: int | None
    calls: int
    size_bytes: int
    first_ns: int
    last_ns: int | None
    last_call: int
    last_tid: int


class CommunicatorMaps:
    """`communicators`, and `drivers_seen` beside it. One thread reads it."""

    def __init__(self, fds: Mapping[str, int], drop_pending: int | None = None) -> None:
        """`drop_pending`: the program of that name; None: no thread is forgotten while its process lives."""
        self._drop_pending = drop_pending
        self._communicators = HashReader(fds["communicators"], COMMUNICATOR_KEY_DTYPE, COMMUNICATOR_DTYPE)
        self._pending = HashReader(fds["pending_communicators"], PENDING_KEY_DTYPE, PENDING_DTYPE)
        self._drivers_seen = HashReader(fds["drivers_seen"], _TGID_DTYPE, _SEEN_DTYPE)

    @property
    def capacity(self) -> int:
        """Entries that the map of communicators was loaded with."""
        return self._communicators.capacity

    @property
    def pending_capacity(self) -> int:
        """Entries of the map of those that groups make."""
        return self._pending.capacity

    def all(self) -> list[Communicator]:
        """Every communicator of a living process, by process and in the order of their making."""
        keys, values = self._communicators.read()
        found = [
            Communicator(
                pid=int(key["tgid"]),
                handle=int(key["handle"]),
                rank=_told(int(value["rank"])),
                size=_told(int(value["size"])),
                device=None if value["device"] == NO_DEVICE else int(value["device"]),
                calls=int(value["calls"]),
                size_bytes=int(value["bytes"]),
                first_ns=int(value["first_ns"]),
                last_ns=int(value["last_ns"]) or None,
                last_call=int(value["last_call"]),
                last_tid=int(value["last_tid"]),
            )
            for key, value in zip(keys, values, strict=True)
        ]
        return sorted(found, key=lambda each: (each.pid, each.first_ns, each.handle))

    def driver_is_seen(self, pid: int) -> bool:
        """Whether the process's driver was seen inside a call of its runtime, which counts nothing since."""
        return pid in self._drivers_seen.read()[0]["tgid"]

    def forget(self, pids: Collection[int]) -> None:
        """Take out what belongs to processes that are gone."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        for reader in (self._communicators, self._drivers_seen):
            keys = reader.read()[0].copy()
            reader.delete(keys[np.isin(keys["tgid"], gone)])
        keys, values = self._pending.read()
        self._pending.delete(keys[np.isin(values["tgid"], gone)])

    def forget_threads(self, tids: NDArray[np.uint32]) -> None:
        """Groups that ended with their thread. The kernel takes each entry out, so that the share of a
        process that lives on changes by one atomic operation.
        """
        keys = self._pending.read()[0]
        for tid, index in keys[np.isin(keys["tid"], tids)].tolist():
            if self._drop_pending is not None:
                bpf.run(self._drop_pending, struct.pack("<2Q", tid, index))


def _told(value: int) -> int | None:
    return None if value == NO_RANK else value
