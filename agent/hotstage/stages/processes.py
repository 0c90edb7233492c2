# SPDX-License-Identifier: Apache-2.0
"""Totals per process from the rows of its threads, which come and go; and whether it still lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import first_of_each, grouped
from hotstage.stages.lives import Lives
from hotstage.stages.pulse import Rows
from hotstage.stages.spans import PROCESS_DTYPE
from hotstage.stages.stage import NO_STAGE

IsAlive = Callable[[int], bool]

_NO_CALL = (0, 0, 0, NO_STAGE, 0)
_CALL_COLUMNS = ("since_ns", "tid", "call", "stage", "modality")


@dataclass(slots=True)
class _Process:
    """What is summed over all looks at a process."""

    launches: int = 0
    unattributed: int = 0
    output_tokens: int = 0
    instance: int = 0


@dataclass(slots=True)
class _Demand:
    """Open requests of one process."""

    requests: int
    oldest_ns: int
    instance: int


class Processes:
    """One entry per living process that launches or holds requests. Not thread-safe."""

    def __init__(self, is_alive: IsAlive | None = None) -> None:
        self.is_alive = is_alive or Lives()
        self._known: dict[int, _Process] = {}
        self._threads = _Threads()

    def advance(
        self, threads: Rows, requests_open: Rows, output_tokens: Rows
    ) -> tuple[Rows, NDArray[np.uint32]]:
        """(PROCESS_DTYPE rows by pid, pids found dead now). A dead process has a last row, then is
        forgotten.
        """
        launches, unattributed = self._threads.advance(threads)
        calls = dict(self._threads.oldest_calls(threads))
        demands = _demands(requests_open)
        tokens = _tokens_by_pid(output_tokens)
        known, rows, dead = {}, [], []
        for pid in sorted({*launches, *demands}):
            process = known[pid] = self._known.get(pid) or _Process()
            demand = demands.get(pid) or _Demand(0, 0, 0)
            launched = launches.get(pid, 0)
            process.launches += launched
            process.unattributed += unattributed.get(pid, 0)
            process.output_tokens += tokens.get(pid, 0)
            process.instance = demand.instance or process.instance
            since_ns, tid, call, stage, modality = calls.get(pid, _NO_CALL)
            is_dead = not self.is_alive(pid)
            if is_dead:
                dead.append(pid)
            rows.append(  # in the order of PROCESS_DTYPE: one conversion instead of one a field
                (
                    pid,
                    demand.requests,
                    process.launches,
                    launched,
                    process.unattributed,
                    process.output_tokens,
                    demand.oldest_ns,
                    since_ns,
                    tid,
                    call,
                    stage,
                    modality,
                    is_dead,
                    process.instance,
                )
            )
        self._known = known
        return np.array(rows, PROCESS_DTYPE), np.array(dead, np.uint32)


class _Threads:
    """The counters of each thread at the look before. While the same threads stand in the map in the same
    order, which is nearly always, nothing is searched or grouped anew.
    """

    def __init__(self) -> None:
        self._tids: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._tgids: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._pids: list[int] = []
        self._slot: NDArray[np.intp] = np.zeros(0, np.intp)
        self._told: NDArray[np.uint64] = np.zeros((2, 0), np.uint64)
        self._is_first = True

    def advance(self, threads: Rows) -> tuple[dict[int, int], dict[int, int]]:
        """(launches, launches without a stage) of each process since the last look; 0 at first."""
        tids, tgids = threads["tid"], threads["tgid"]
        total = np.stack([threads["launch_total"], threads["unattributed_total"]])
        same_threads = np.array_equal(tids, self._tids)
        told = self._told if same_threads else self._told_of(tids)
        if not (same_threads and np.array_equal(tgids, self._tgids)):
            pids, self._slot = grouped(tgids)
            self._pids = pids.tolist()
        # Less than told: the tid is another thread now.
        grew = total - (total if self._is_first else np.where(told > total, np.uint64(0), told))
        self._tids, self._tgids, self._told, self._is_first = tids.copy(), tgids.copy(), total, False
        return self._by_pid(grew[0]), self._by_pid(grew[1])

    def oldest_calls(self, threads: Rows) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(pid, (since, tid, call, stage, modality)) of the call that a process sits in longest."""
        inside = np.flatnonzero(threads["call"])
        if len(inside) == 0:
            return
        inside = inside[np.argsort(threads["since_ns"][inside], kind="stable")]
        slots, first = first_of_each(self._slot[inside])
        oldest = inside[first]
        columns = (threads[name][oldest].tolist() for name in _CALL_COLUMNS)
        for slot, call in zip(slots.tolist(), zip(*columns, strict=True), strict=True):
            yield self._pids[slot], call

    def _told_of(self, tids: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """(2, N) counters of these threads at the look before; 0 for new ones."""
        told = np.zeros((2, len(tids)), np.uint64)
        if len(self._tids):
            order = np.argsort(self._tids)
            known = self._tids[order]
            place = np.minimum(np.searchsorted(known, tids), len(known) - 1)
            same = known[place] == tids
            told[:, same] = self._told[:, order[place[same]]]
        return told

    def _by_pid(self, values: NDArray[np.uint64]) -> dict[int, int]:
        """Sums of (N,) values per process. Exact: integers, not weights of a float histogram."""
        if not values.any():
            return dict.fromkeys(self._pids, 0)
        sums = np.zeros(len(self._pids), np.uint64)
        np.add.at(sums, self._slot, values)
        return dict(zip(self._pids, sums.tolist(), strict=True))


def _demands(requests_open: Rows) -> dict[int, _Demand]:
    """Requests in flight by process."""
    demands: dict[int, _Demand] = {}
    columns = (requests_open[name].tolist() for name in ("pid", "started_ns", "instance"))
    for pid, started_ns, instance in zip(*columns, strict=True):
        demand = demands.get(pid)
        if demand is None:
            demands[pid] = _Demand(1, started_ns, instance)
            continue
        demand.requests += 1
        if started_ns < demand.oldest_ns:
            demand.oldest_ns, demand.instance = started_ns, instance
    return demands


def _tokens_by_pid(output_tokens: Rows) -> dict[int, int]:
    tokens: dict[int, int] = {}
    columns = (output_tokens[name].tolist() for name in ("pid", "tokens"))
    for pid, count in zip(*columns, strict=True):
        tokens[pid] = tokens.get(pid, 0) + count
    return tokens
