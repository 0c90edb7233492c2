# SPDX-License-Identifier: Apache-2.0
"""Launches by why they count as their stage: by a mark, an NVTX range, a rule, a fingerprint, or as nothing.

Pure arithmetic on THREAD_DTYPE rows. Threads that ended stay in their process's sums until it is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import grouped
from hotstage.probes.maps.layout import NO_STAGE, Source


@dataclass(frozen=True, slots=True)
class LaunchSources:
    """Launch-class calls since the probes were attached; they add up to all launches."""

    mark: int = 0
    nvtx: int = 0
    rule: int = 0
    fingerprint: int = 0
    none: int = 0

    @property
    def total(self) -> int:
        return self.mark + self.nvtx + self.rule + self.fingerprint + self.none

    @property
    def marked(self) -> int:
        """By the program itself."""
        return self.mark + self.nvtx

    def __add__(self, other: LaunchSources) -> LaunchSources:
        return LaunchSources(
            self.mark + other.mark,
            self.nvtx + other.nvtx,
            self.rule + other.rule,
            self.fingerprint + other.fingerprint,
            self.none + other.none,
        )


def of_threads(threads: NDArray[np.void]) -> list[LaunchSources]:
    """One for each of THREAD_DTYPE (T,), in order."""
    return [LaunchSources(*row) for row in zip(*_columns(threads).tolist(), strict=True)]


def by_process(threads: NDArray[np.void]) -> dict[int, LaunchSources]:
    """Sums of THREAD_DTYPE (T,) by pid."""
    pids, slots = grouped(threads["tgid"])
    sums = np.zeros((5, len(pids)), np.int64)
    for total, column in zip(sums, _columns(threads), strict=True):
        np.add.at(total, slots, column)
    rows = zip(*sums.tolist(), strict=True)
    return {pid: LaunchSources(*row) for pid, row in zip(pids.tolist(), rows, strict=True)}


def _columns(threads: NDArray[np.void]) -> NDArray[np.int64]:
    """(5, T) launches in the order of `LaunchSources`."""
    total, none, rule, fingerprint = (
        threads[name].astype(np.int64)
        for name in ("launch_total", "unattributed_total", "rule_total", "fingerprint_total")
    )
    # The kernel credits a range's launches when it ends; until then they stand between two totals.
    is_open = (threads["source"] == Source.NVTX) & (threads["stage"] != NO_STAGE)
    pending = np.where(is_open, total - threads["flushed_launch_total"].astype(np.int64), 0)
    nvtx = threads["nvtx_total"].astype(np.int64) + np.maximum(pending, 0)
    mark = np.maximum(total - none - rule - fingerprint - nvtx, 0)
    return np.stack([mark, nvtx, rule, fingerprint, none])


class SourcesBook:
    """What threads that ended had launched. Not thread-safe: one lock around both ticks."""

    def __init__(self) -> None:
        self._ended: dict[int, LaunchSources] = {}
        self._gone = LaunchSources()

    def keep(self, threads: NDArray[np.void]) -> None:
        """THREAD_DTYPE rows that were taken out."""
        for pid, launches in by_process(threads).items():
            self._ended[pid] = self._ended.get(pid, LaunchSources()) + launches

    def forget(self, pids: Collection[int]) -> None:
        """Processes that are taken out, after `keep` of their last threads: they stay in `total`."""
        for pid in pids:
            self._gone += self._ended.pop(pid, LaunchSources())

    def sum(self, threads: NDArray[np.void]) -> Mapping[int, LaunchSources]:
        """By pid, threads that live and that ended."""
        found = dict(self._ended)
        for pid, launches in by_process(threads).items():
            found[pid] = found.get(pid, LaunchSources()) + launches
        return found

    def total(self, threads: NDArray[np.void]) -> LaunchSources:
        """Of all processes, those that have gone too: it never falls."""
        return sum(self.sum(threads).values(), self._gone)
