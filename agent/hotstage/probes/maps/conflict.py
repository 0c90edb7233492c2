# SPDX-License-Identifier: Apache-2.0
"""The token conflict's maps and who works on which stream: dtypes equal to bpf/include/conflict_abi.h, read
and written; what they mean is not decided here.

Any thread may call. It never looks at /proc: callers say who is gone.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps.layout import DEVICE_KEY_DTYPE, FUNCTION_KEY_DTYPE, MODALITIES, EventKind
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.maps.ring import RingReader

TOKEN_KINDS = 2
VISUAL, TEXT = range(TOKEN_KINDS)


class TokenBasis(IntEnum):
    """How well tokens in flight are known, the better the higher; `enum hotstage_token_basis`."""

    UNKNOWN = 0
    ESTIMATED = 1
    """From bytes copied to the device."""
    KNOWN = 2
    """From marks."""


class Outcome(IntEnum):
    """What became of an allocation that was looked at; `enum hotstage_conflict_outcome`."""

    NO_INPUTS = 0
    STALE = 1
    UNKNOWN = 2
    FEW_TOKENS = 3
    NOT_FRAGMENTED = 4
    HAS_ROOM = 5
    TOLD = 6
    HELD_BACK = 7
    LOST = 8


TERM_FRAGMENTED = 1

LIMITS_DTYPE = np.dtype(
    [
        ("allocation_bytes", "<u8"),
        ("tokens", "<u8", (TOKEN_KINDS,)),
        ("stale_ns", "<u8"),
        ("gap_ns", "<u8"),
        ("fragmentation_permille", "<u4"),
        ("pad", "<u4"),
    ]
)
INPUTS_DTYPE = np.dtype(
    [
        ("headroom_bytes", "<u8"),
        ("headroom_ns", "<u8"),
        ("tokens", "<u8", (TOKEN_KINDS,)),
        ("awaited", "<u8", (TOKEN_KINDS,)),
        ("tokens_ns", "<u8"),
        ("bytes_per_token", "<u8", (TOKEN_KINDS,)),
        ("fragmentation_ns", "<u8"),
        ("fragmentation_permille", "<u4"),
        ("fragmentation_basis", "u1"),
        ("tokens_basis", "u1"),
        ("pad", "u1", (2,)),
    ]
)
LATCH_DTYPE = np.dtype([("told_ns", "<u8"), ("held_back", "<u8")])
CONFLICT_EVENT_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("device", "<u4"),
        ("at_ns", "<u8"),
        ("bytes", "<u8"),
        ("request_hash", "<u8"),
        ("predicted_bytes", "<u8"),
        ("held_back", "<u8"),
        ("inputs", INPUTS_DTYPE),
        ("call", "<u2"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("terms", "u1"),
        ("pad", "u1", (3,)),
    ]
)
STREAM_USER_DTYPE = np.dtype(
    [(name, "<u8", (MODALITIES,)) for name in ("launches", "first_ns", "last_ns", "stage_masks")]
)

_TGID_DTYPE = np.dtype([("tgid", "<u4")])
_PLACE = struct.Struct("<II")
_EVENTS: dict[int, np.dtype[np.void]] = {EventKind.TOKEN_CONFLICT: CONFLICT_EVENT_DTYPE}


@dataclass(frozen=True, slots=True)
class StreamUser:
    """Launches on one CUstream (0 = the default one) by modality, (6,) each; times CLOCK_MONOTONIC ns, 0 =
    never. `stage_masks`: a bit for each stage that launched there; of own stages those of the process.
    """

    pid: int
    stream: int
    launches: tuple[int, ...]
    first_ns: tuple[int, ...]
    last_ns: tuple[int, ...]
    stage_masks: tuple[int, ...]


class ConflictMaps:
    """`urgent` is read here alone."""

    def __init__(self, fds: Mapping[str, int]) -> None:
        self._fds = fds
        self._lock = threading.Lock()
        self._ring = RingReader(fds["urgent"])
        self._inputs = HashReader(fds["conflict_inputs"], DEVICE_KEY_DTYPE, INPUTS_DTYPE)
        self._latches = HashReader(fds["conflict_latches"], _TGID_DTYPE, LATCH_DTYPE)
        self._streams = HashReader(fds["stream_users"], FUNCTION_KEY_DTYPE, STREAM_USER_DTYPE)
        self._written: set[bytes] | None = None
        """Keys of `conflict_inputs`; some may have gone with their process. None: not looked at yet."""

    @property
    def stream_capacity(self) -> int:
        """Entries that the map of streams was loaded with."""
        return self._streams.capacity

    @property
    def urgent_fd(self) -> int:
        """Readable while there is a verdict that was not drained."""
        return self._fds["urgent"]

    def set_limits(self, limits: NDArray[np.void]) -> None:
        """LIMITS_DTYPE (1,), for allocations from now on."""
        bpf.update(self._fds["conflict_limits"], struct.pack("<I", 0), limits.tobytes())

    def set_inputs(self, rows: Mapping[tuple[int, int], np.void]) -> int:
        """(pid, ordinal) → INPUTS_DTYPE (); others are taken out. How many found no room."""
        written: set[bytes] = set()
        with self._lock:
            if self._written is None:
                self._written = {key.tobytes() for key in self._inputs.read()[0]}
            for (pid, ordinal), row in rows.items():
                key = _PLACE.pack(pid, ordinal)
                try:
                    bpf.update(self._fds["conflict_inputs"], key, row.tobytes())
                except OSError:
                    continue
                written.add(key)
            for key in self._written - written:
                bpf.delete(self._fds["conflict_inputs"], key)
            self._written = written
        return len(rows) - len(written)

    def drain(self) -> NDArray[np.void]:
        """CONFLICT_EVENT_DTYPE (N,): verdicts since the last call, oldest first."""
        with self._lock:
            return self._ring.drain(_EVENTS)[EventKind.TOKEN_CONFLICT]

    def counts(self) -> dict[Outcome, int]:
        """Allocations that were looked at, by what became of them, since the probes were loaded."""
        found = {}
        for outcome in Outcome:
            value = bpf.lookup(self._fds["conflict_counts"], struct.pack("<I", outcome), 8)
            found[outcome] = int.from_bytes(value or b"", "little")
        return found

    def streams(self) -> list[StreamUser]:
        """Every stream that launches were credited to, by process and address."""
        with self._lock:
            keys, rows = (each.copy() for each in self._streams.read())
        names = ("launches", "first_ns", "last_ns", "stage_masks")
        found = [
            StreamUser(int(key["tgid"]), int(key["handle"]), *(tuple(row[name].tolist()) for name in names))
            for key, row in zip(keys, rows, strict=True)
        ]
        return sorted(found, key=lambda each: (each.pid, each.stream))

    def forget(self, pids: Collection[int]) -> None:
        """Take out what belongs to processes that are gone."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        with self._lock:
            for reader in (self._inputs, self._latches, self._streams):
                keys = reader.read()[0].copy()
                reader.delete(keys[np.isin(keys["tgid"], gone)])

    def close(self) -> None:
        """Unmap; the descriptors belong to the loader."""
        with self._lock:
            self._ring.close()
