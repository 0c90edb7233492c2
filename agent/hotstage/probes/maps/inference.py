# SPDX-License-Identifier: Apache-2.0
"""The maps behind unmarked work: rules, functions by handle, learning counts, streams. Values in, values out.

User space decides, the kernel applies: a change counts from the next launch on, because each call here that
changes something moves `settings.rules_generation`. Any thread may call; `_lock` guards the read buffers.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps import layout
from hotstage.probes.maps.layout import NO_STAGE, FunctionKind, RuleFlag, Source
from hotstage.probes.maps.reader import HashReader

_COUNT_DTYPE = np.dtype([("launches", "<u8")])
_UNKNOWN_MODALITY = layout.MODALITIES - 1
_NO_FLAGS = RuleFlag(0)


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """What work of a thread (tid, 0 = every thread) on a stream (0 = every stream, `layout.NULL_STREAM` = the
    default one) counts as.

    `stage` NO_STAGE: no rule; then `flags` says whether functions or steps decide.
    """

    tid: int = 0
    stream: int = 0
    stage: int = NO_STAGE
    modality: int = _UNKNOWN_MODALITY
    flags: RuleFlag = _NO_FLAGS


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a process looked up by its name: at most 47 bytes of it, and a hash of 282."""

    pid: int
    handle: int
    name_hash: int
    name: str
    kind: FunctionKind


@dataclass(frozen=True, slots=True)
class FunctionDecision:
    """What a launch of a function says of its thread. `stage_mask` bit n: stage n launches it too."""

    kind: FunctionKind
    stage: int = NO_STAGE
    modality: int = _UNKNOWN_MODALITY
    stage_mask: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """A CUstream that a process made. `priority`: the lower the more urgent."""

    pid: int
    handle: int
    created_ns: int
    priority: int


class InferenceMaps:
    """`bump` moves the generation in the kernel's settings."""

    def __init__(self, fds: Mapping[str, int], bump: Callable[[], None]) -> None:
        self._fds = fds
        self._bump = bump
        self._lock = threading.Lock()
        self._rules = HashReader(fds["stage_rules"], layout.STAGE_RULE_KEY_DTYPE, layout.STAGE_RULE_DTYPE)
        self._functions = HashReader(fds["functions"], layout.FUNCTION_KEY_DTYPE, layout.FUNCTION_STATE_DTYPE)
        self._counts = HashReader(fds["function_counts"], layout.FUNCTION_COUNT_KEY_DTYPE, _COUNT_DTYPE)
        self._streams = HashReader(fds["streams"], layout.FUNCTION_KEY_DTYPE, layout.STREAM_STATE_DTYPE)
        self._told: dict[int, dict[tuple[int, int], bytes]] = {}

    def capacities(self) -> tuple[int, int, int]:
        """Entries of `functions`, `function_counts` and `streams`."""
        return self._functions.capacity, self._counts.capacity, self._streams.capacity

    def set_rules(self, pid: int, entries: Collection[RuleEntry]) -> int:
        """These and no others for the process from now on; how many found no room. Unchanged: free."""
        wanted = {(entry.tid, entry.stream): _packed(entry) for entry in entries}
        with self._lock:
            told = self._told.get(pid, {})
            if wanted == told:
                return 0
            kept: dict[tuple[int, int], bytes] = {}
            for (tid, stream), value in wanted.items():
                try:
                    bpf.update(self._fds["stage_rules"], struct.pack("<IIQ", pid, tid, stream), value)
                except OSError:
                    continue  # full
                kept[tid, stream] = value
            for tid, stream in told.keys() - kept.keys():
                bpf.delete(self._fds["stage_rules"], struct.pack("<IIQ", pid, tid, stream))
            self._told.pop(pid, None)
            if kept:
                self._told[pid] = kept
        self._bump()
        return len(wanted) - len(kept)

    def functions(self) -> list[Function]:
        """Every function whose name is known, of all processes."""
        with self._lock:
            keys, states = (rows.copy() for rows in self._functions.read())
        columns = (
            keys["tgid"].tolist(),
            keys["handle"].tolist(),
            states["name_hash"].tolist(),
            states["name"].tolist(),
            states["kind"].tolist(),
        )
        return [
            Function(pid, handle, name_hash, _clean(name), FunctionKind(min(kind, 2)))
            for pid, handle, name_hash, name, kind in zip(*columns, strict=True)
            if name_hash and name  # else it is a host function's, and awaits its symbol
        ]

    def name_host_function(self, pid: int, address: int, name_hash: int, name: bytes) -> None:
        """A host function is called like that from now on, and so are the handles that it was asked for."""
        with self._lock:
            keys, states = (rows.copy() for rows in self._functions.read())
            awaiting = (keys["tgid"] == pid) & (states["name_hash"] == address) & (states["name"] == b"")
            for handle in {address, *keys["handle"][awaiting].tolist()}:
                row = np.zeros(1, layout.FUNCTION_STATE_DTYPE)
                row["name_hash"], row["name"] = name_hash, name[:47]
                with contextlib.suppress(OSError):  # full
                    bpf.update(self._fds["functions"], struct.pack("<QII", handle, pid, 0), row.tobytes())

    def decide(self, pid: int, decisions: Mapping[int, FunctionDecision]) -> int:
        """What launches of these handles say from now on; how many were decided. A handle that is not known
        any more is left out, but for all graphs' (`layout.GRAPH_HANDLE`), which is made.
        """
        decided = 0
        with self._lock:
            for handle, decision in decisions.items():
                key = struct.pack("<QII", handle, pid, 0)
                raw = bpf.lookup(self._fds["functions"], key, layout.FUNCTION_STATE_DTYPE.itemsize)
                if raw is None and handle != layout.GRAPH_HANDLE:
                    continue
                row = np.zeros(1, layout.FUNCTION_STATE_DTYPE)
                if raw is not None:
                    row[:] = np.frombuffer(raw, layout.FUNCTION_STATE_DTYPE)
                row["stage_mask"], row["kind"] = decision.stage_mask, decision.kind
                row["stage"], row["modality"] = decision.stage, decision.modality
                try:
                    bpf.update(self._fds["functions"], key, row.tobytes())
                except OSError:
                    continue  # full
                decided += 1
        return decided

    def counts(self) -> list[tuple[int, int, int, int, int]]:
        """(pid, handle, stage, modality, launches) of marked launches while learning; cumulative."""
        with self._lock:
            keys, values = (rows.copy() for rows in self._counts.read())
        columns = (keys[name].tolist() for name in ("tgid", "handle", "stage", "modality"))
        return list(zip(*columns, values["launches"].tolist(), strict=True))

    def streams(self) -> list[Stream]:
        """Streams by process, in the order of their making."""
        with self._lock:
            keys, values = (rows.copy() for rows in self._streams.read())
        columns = (
            keys["tgid"].tolist(),
            keys["handle"].tolist(),
            values["created_ns"].tolist(),
            values["priority"].tolist(),
        )
        found = [Stream(*row) for row in zip(*columns, strict=True)]
        return sorted(found, key=lambda each: (each.pid, each.created_ns))

    def forget(self, pids: Collection[int]) -> None:
        """Take out all that there is of processes that have gone."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        with self._lock:
            for reader in (self._rules, self._functions, self._counts, self._streams):
                keys: NDArray[np.void] = reader.read()[0].copy()
                reader.delete(keys[np.isin(keys["tgid"], gone)])
            for pid in pids:
                self._told.pop(pid, None)


def _packed(entry: RuleEntry) -> bytes:
    source = Source.NONE if entry.stage == NO_STAGE else Source.RULE
    return bytes((entry.stage, entry.modality, source, entry.flags))


def _clean(raw: bytes) -> str:
    """A stranger's name as text without what controls a terminal."""
    text = raw.decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "?" for char in text)
