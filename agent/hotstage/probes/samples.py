# SPDX-License-Identifier: Apache-2.0
"""What the probes hand to the rest of the line: arrays read at one moment, with their clock and losses.

Values only, never behaviour that reads a map. Times: CLOCK_MONOTONIC in ns; dtypes: `maps/layout.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.graphs import no_work
from hotstage.probes.maps.layout import BATCH_EVENT_DTYPE


def _no_batches() -> NDArray[np.void]:
    return np.zeros(0, BATCH_EVENT_DTYPE)


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One Xid line of the GPU driver. `source` is where it came from (`kernel_log`, `nvml`, `tracepoint`)."""

    at_ns: int
    pci_bus_id: str
    xid: int
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class ConflictVerdict:
    """The kernel's verdict on one allocation: tokens in flight leave no room for what they still need.

    `device` is the process's ordinal; `stage` 255: none. `tokens_basis` is `known` or `estimated`;
    `fragmentation_ratio` None: not known, and then no term. `held_back`: verdicts of the process so far that
    were not told, since another had just been.
    """

    at_ns: int
    pid: int
    tid: int
    device: int
    call: str
    stage: int
    modality: int
    request_hash: int | None
    bytes: int
    visual_tokens: int
    text_tokens: int
    tokens_basis: str
    fragmentation_ratio: float | None
    fragmentation_basis: str
    predicted_bytes: int
    headroom_bytes: int
    headroom_age_ns: int
    held_back: int


@dataclass(frozen=True, slots=True)
class FastSample:
    """State in flight, read every fast tick.

    threads:  THREAD_DTYPE (T,), every thread seen so far; in flight means `call != 0`.
    requests: REQUEST_DTYPE (R,), requests in flight.
    finished: FINISHED_DTYPE (F,), requests that ended since the last read; each is delivered once.
    events:   CALL_EVENT_DTYPE (E,), slow and failed calls since the last read.
    losses:   by name, cumulative since load.
    unclean:  entries that came or went during the read, so may be missing or stale here.
    batches:  BATCH_EVENT_DTYPE (B,), batches that ended since the last read, in parts of up to 64 members.
    shares:   what `stages.shares` has made of them, a row for each member; None before.
    is_blind: the probes are switched off: what is in flight is not seen.
    conflicts: verdicts on allocations since the last read, oldest first.
    """

    at_ns: int
    threads: NDArray[np.void]
    requests: NDArray[np.void]
    finished: NDArray[np.void]
    xids: tuple[XidEvent, ...]
    events: NDArray[np.void]
    losses: Mapping[str, int]
    unclean: int
    batches: NDArray[np.void] = field(default_factory=_no_batches)
    shares: NDArray[np.void] | None = None
    is_blind: bool = False
    conflicts: tuple[ConflictVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class CallSample:
    """Counts by key, read every slow tick.

    keys:  CALL_KEY_DTYPE (N,).
    stats: CALL_STAT_DTYPE (N,), cumulative since the epoch began.
    moved: bool (N,), whether the key's count changed since the last read.
    histograms: uint64 (slots, 242), row 0 unused; a copy made at the read.
    graphs: CALL_KEY_DTYPE and GRAPH_WORK_DTYPE (G,), cumulative: launches in captures, and of graphs.
    """

    at_ns: int
    keys: NDArray[np.void]
    stats: NDArray[np.void]
    moved: NDArray[np.bool_]
    histograms: NDArray[np.uint64] = field(repr=False)
    graphs: tuple[NDArray[np.void], NDArray[np.void]] = field(default_factory=no_work)

    def histogram(self, row: int) -> NDArray[np.uint64]:
        """Counts of the row's durations, uint64 (242,): underflow, 240 scale-3 slots from 2^-22 s, overflow.

        All zero for a key without a histogram (launches, or none was left).
        """
        slot = int(self.stats["histogram_slot"][row])
        if slot == 0:
            return np.zeros(self.histograms.shape[1], dtype=np.uint64)
        row_counts: NDArray[np.uint64] = self.histograms[slot]
        return row_counts


@dataclass(frozen=True, slots=True)
class SchedulingSample:
    """What threads in the GPU path waited for a CPU and why they were off it, read every slow tick.

    keys:  CPU_KEY_DTYPE (N,) of `maps/scheduling.py`.
    stats: CPU_STAT_DTYPE (N,), cumulative; of times off the CPU that have ended.
    histograms: uint64 (slots, 242), by `histogram_slot` of a row: waits for a CPU after a sleep and after
        being preempted; row 0 is nobody's.
    threads: CPU_THREAD_DTYPE (T,), the sums of each thread that was seen to switch.
    page_fault_epoch: since which attach, by number, `page_faults` of `stats` has moved; None: it does not.
    """

    at_ns: int
    keys: NDArray[np.void]
    stats: NDArray[np.void]
    histograms: NDArray[np.uint64] = field(repr=False)
    threads: NDArray[np.void] = field(repr=False)
    page_fault_epoch: int | None = None

    def page_faults_by_pid(self) -> dict[int, int]:
        """Cumulative, of each process that has a row."""
        found: dict[int, int] = {}
        for pid, count in zip(self.keys["tgid"].tolist(), self.stats["page_faults"].tolist(), strict=True):
            found[pid] = found.get(pid, 0) + count
        return found
