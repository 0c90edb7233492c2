# SPDX-License-Identifier: Apache-2.0
"""Exact counts as of now: what the kernel holds, and what it held of processes and threads that have gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.coverage import CallTotals
from hotstage.probes.launch_sources import LaunchSources, SourcesBook
from hotstage.probes.loader.base import Rung
from hotstage.probes.maps.guarded import GuardedMaps
from hotstage.probes.maps.kernel import Forgotten, KernelMaps
from hotstage.probes.totals import TotalsBook


class Counted:
    """Any thread may ask; `keep…` by whoever holds the maps, while it takes the rows out of them."""

    def __init__(self, maps: GuardedMaps) -> None:
        self._maps = maps
        self._calls = TotalsBook()
        self._launches = SourcesBook()

    def totals(self, rung: str) -> CallTotals:
        """By call and process, the gone ones included."""
        with self._maps.held() as maps:
            # Threads first: a call that returns in between is counted twice for a moment, never not at all.
            threads, work = maps.threads(), maps.graphs.work()
            return self._calls.sum(*maps.calls(), threads, _lost_calls(maps, rung), work)

    def launches_by_source(self) -> Mapping[int, LaunchSources]:
        """pid → its launches by why they count as their stage; processes that have gone stay for a while."""
        with self._maps.held() as maps:
            return self._launches.sum(maps.threads())

    def launches_and_total(self) -> tuple[Mapping[int, int], int]:
        """pid → its launches, and those of all processes, as of one moment."""
        with self._maps.held() as maps:
            threads = maps.threads()
            by_pid = {pid: each.total for pid, each in self._launches.sum(threads).items()}
            return by_pid, self._launches.total(threads).total

    def launch_totals(self) -> LaunchSources:
        """Launches of all processes by source, those that have gone too."""
        with self._maps.held() as maps:
            return self._launches.total(maps.threads())

    def keep(self, forgotten: Forgotten, pids: Collection[int]) -> None:
        """Last rows of processes that have gone."""
        self._calls.keep(forgotten)
        self._launches.keep(forgotten.threads)
        self._launches.forget(pids)

    def keep_threads(self, ended: NDArray[np.void]) -> None:
        """THREAD_DTYPE rows of threads that have gone; their process may live."""
        self._calls.keep_threads(ended)
        self._launches.keep(ended)

    def keep_open_calls(self, threads: NDArray[np.void]) -> None:
        """Calls in which these threads are: made, and nobody will see them return. The rows stay."""
        self._calls.keep_threads(threads)


def _lost_calls(maps: KernelMaps, rung: str) -> int:
    """Calls that were made and are in no sum. Only rung S times a call without its thread's state."""
    losses = maps.losses()
    lost = losses["lost_call_keys"]
    return lost if rung == Rung.SESSION else lost + losses["lost_threads"] + losses["lost_frames"]
