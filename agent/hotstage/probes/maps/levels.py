# SPDX-License-Identifier: Apache-2.0
"""How much the programs record of each process, what they cannot count elsewhere, and threads whose probes
have gone: `bpf/include/levels.h`, from user space.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps import layout
from hotstage.probes.maps.reader import HashReader

PROBE_HITS_DTYPE = np.dtype([("marks", "<u8"), ("nvtx", "<u8")])
_PID_DTYPE = np.dtype([("tgid", "<u4")])


class Level(IntEnum):
    """What is recorded of a process, from all to nothing; all but the last as `enum hotstage_level`."""

    full = 0
    no_stacks = 1
    """No user stack of a slow or failing call."""
    tails_only = 2
    """No histogram: counts, total time, slow and failing calls, what is in flight."""
    counts_only = 3
    """Counted at the entry: no time, error or bytes, but for calls that change state; one trap a call."""
    detached = 4
    """Nothing: no probe is left in the process."""


class LevelMaps:
    """Levels in, hits out. Any one thread at a time."""

    def __init__(self, fds: Mapping[str, int]) -> None:
        self._levels = fds["process_levels"]
        self._generation_fd = fds["level_generation"]
        self._hits = HashReader(fds["probe_hits"], _PID_DTYPE, PROBE_HITS_DTYPE)
        self._generation = 0

    def set(self, pid: int, level: Level) -> None:
        """From the next timed call of the process on. Raises OSError when `process_levels` is full."""
        key = struct.pack("<I", pid)
        if level is Level.full:
            bpf.delete(self._levels, key)
        else:
            bpf.update(self._levels, key, struct.pack("<I", min(level, Level.counts_only)))
        self._generation += 1
        bpf.update(self._generation_fd, bytes(4), struct.pack("<Q", self._generation))

    def hits(self) -> dict[int, tuple[int, int]]:
        """pid → (marks, NVTX pushes and pops), cumulative."""
        pids, hits = self._hits.read()
        columns = (pids["tgid"].tolist(), hits["marks"].tolist(), hits["nvtx"].tolist())
        return {pid: (marks, nvtx) for pid, marks, nvtx in zip(*columns, strict=True)}

    def forget(self, pids: Collection[int]) -> None:
        """Processes that are gone."""
        for pid in pids:
            key = struct.pack("<I", pid)
            bpf.delete(self._levels, key)
            bpf.delete(self._hits.fd, key)


_AT = layout.THREAD_DTYPE.itemsize - layout.THREAD_STATE_DTYPE.itemsize


def rest(threads_fd: int, threads: NDArray[np.void]) -> None:
    """Write THREAD_DTYPE rows back as threads in no call, stage, request or batch; device, context and totals
    stay.

    Only while no program runs for them: a thread's state is its own otherwise.
    """
    rows = threads.copy()
    for name in ("call", "depth", "in_batch", "request_hash", "source", "rules_generation", "rule_flags"):
        rows[name] = 0
    for name in ("stage", "inferred_stage", "rule_stage"):
        rows[name] = layout.NO_STAGE
    for name in ("modality", "inferred_modality", "rule_modality"):
        rows[name] = layout.MODALITIES - 1
    for row in rows:
        bpf.update(threads_fd, struct.pack("<I", row["tid"]), row.tobytes()[_AT:])
