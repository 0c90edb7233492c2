# SPDX-License-Identifier: Apache-2.0
"""The scheduler's maps: dtypes equal to bpf/include/scheduling.h, read once a second, cleared of who has
gone.

One thread reads it. It never looks at /proc: callers say who is dead.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps.histograms import HistogramSlots
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.samples import SchedulingSample

CPU_KEY_DTYPE = np.dtype([("tgid", "<u4"), ("stage", "u1"), ("modality", "u1"), ("pad", "u1", 2)])
CPU_STAT_DTYPE = np.dtype(
    [
        ("sleep_ns", "<u8", 2),
        ("woken_wait_ns", "<u8", 2),
        ("preempted_wait_ns", "<u8", 2),
        ("voluntary", "<u8"),
        ("involuntary", "<u8"),
        ("reclaim_ns", "<u8"),
        ("reclaims", "<u8"),
        ("page_faults", "<u8"),
        ("histogram_slot", "<u4"),
        ("pad", "<u4"),
    ]
)
"""[0] began outside of any timed call, [1] inside one."""
CPU_THREAD_STATE_DTYPE = np.dtype(
    [
        ("tgid", "<u4"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("in_call", "u1"),
        ("is_preempted", "u1"),
        ("started_ns", "<u8"),
        ("left_ns", "<u8"),
        ("run_delay_ns", "<u8"),
        ("task_voluntary", "<u8"),
        ("task_involuntary", "<u8"),
        ("voluntary", "<u8"),
        ("involuntary", "<u8"),
        ("sleep_ns", "<u8"),
        ("woken_wait_ns", "<u8"),
        ("preempted_wait_ns", "<u8"),
        ("reclaim_since_ns", "<u8"),
        ("reclaim_ns", "<u8"),
    ]
)
CPU_THREAD_DTYPE = np.dtype([("tid", "<u4"), *CPU_THREAD_STATE_DTYPE.descr])
_TID_DTYPE = np.dtype([("tid", "<u4")])


class SchedulingMaps:
    """`cpu_threads` and `cpu_stats`; the histograms are the counters'."""

    def __init__(self, threads_fd: int, stats_fd: int, histograms: HistogramSlots) -> None:
        self._threads = HashReader(threads_fd, _TID_DTYPE, CPU_THREAD_STATE_DTYPE)
        self._stats = HashReader(stats_fd, CPU_KEY_DTYPE, CPU_STAT_DTYPE)
        self._histograms = histograms

    def read(self, at_ns: int, page_fault_epoch: int | None = None) -> SchedulingSample:
        """Everything as of now, copies; `page_fault_epoch` is the caller's to know."""
        keys, stats = (rows.copy() for rows in self._stats.read())
        self._histograms.refresh(stats["histogram_slot"])
        return SchedulingSample(at_ns, keys, stats, self._histograms.copied, self.threads(), page_fault_epoch)

    def threads(self) -> NDArray[np.void]:
        """CPU_THREAD_DTYPE (T,), a copy."""
        keys, states = self._threads.read()
        rows = np.zeros(len(keys), CPU_THREAD_DTYPE)
        rows["tid"] = keys["tid"]
        for name in CPU_THREAD_STATE_DTYPE.names or ():
            rows[name] = states[name]
        return rows

    def forget_processes(self, pids: Collection[int]) -> None:
        """Take out all entries of processes that are gone, and offer their histograms again."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        keys, stats = (rows.copy() for rows in self._stats.read())
        is_theirs = np.isin(keys["tgid"], gone)
        self._stats.delete(keys[is_theirs])
        self._histograms.recycle(stats["histogram_slot"][is_theirs])
        tids, states = self._threads.read()
        self._threads.delete(tids[np.isin(states["tgid"], gone)].copy())

    def forget_threads(self, tids: Collection[int]) -> None:
        """Take out threads that have ended while their process lives; its sums stay."""
        self._threads.delete(np.fromiter(tids, np.uint32, len(tids)).view(_TID_DTYPE))

    def bytes_by_map(self) -> dict[str, int]:
        """Memory that its maps hold in the kernel, as it accounts for it."""
        readers = {"cpu_threads": self._threads, "cpu_stats": self._stats}
        return {name: bpf.locked_bytes(reader.fd) for name, reader in readers.items()}

    def begin_anew(self) -> None:
        """Forget where each thread was: what lies between two epochs belongs to neither."""
        self._threads.delete(self._threads.read()[0].copy())
