# SPDX-License-Identifier: Apache-2.0
"""Totals per process from the rows of its threads, which come and go; and whether it still lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.pulse import Rows
from hotstage.stages.spans import PROCESS_DTYPE

IsAlive = Callable[[int], bool]


def process_is_alive(pid: int, proc_root: Path = Path("/proc")) -> bool:
    """Whether the process runs: one that is gone or a zombie does not. Unreadable counts as alive."""
    try:
        fields = (proc_root / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    return not fields or fields[0] not in (b"Z", b"X", b"x")


@dataclass(slots=True)
class _Totals:
    launches: int = 0
    unattributed: int = 0
    output_tokens: int = 0
    instance: int = 0


class Processes:
    """One entry per living process that launches or holds requests. Not thread-safe."""

    def __init__(self, is_alive: IsAlive = process_is_alive) -> None:
        self.is_alive = is_alive
        self._totals: dict[int, _Totals] = {}
        self._tids: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._launches: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._unattributed: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._is_first = True

    def advance(
        self, threads: Rows, requests_open: Rows, output_tokens: Rows
    ) -> tuple[Rows, NDArray[np.uint32]]:
        """(PROCESS_DTYPE rows, pids found dead now). A dead process has a last row, then is forgotten."""
        threads = threads[np.argsort(threads["tid"], kind="stable")]
        launches, unattributed = self._thread_deltas(threads)
        pids = np.unique(np.concatenate([threads["tgid"], requests_open["pid"]]))
        rows = np.zeros(len(pids), PROCESS_DTYPE)
        rows["pid"] = pids
        rows["call_stage"] = 255
        slot = np.searchsorted(pids, threads["tgid"])
        rows["launch_delta"] = _sum_by(slot, launches, len(pids))
        fresh_unattributed = _sum_by(slot, unattributed, len(pids))
        fresh_tokens = _tokens_by_pid(output_tokens)
        _fill_requests(rows, requests_open)
        _fill_oldest_call(rows, threads, slot)
        for row, extra in zip(rows, fresh_unattributed, strict=True):
            self._add_totals(row, int(extra), fresh_tokens)
        self._totals = {pid: self._totals[pid] for pid in pids.tolist()}
        return rows, pids[rows["is_dead"]]

    def _add_totals(self, row: Any, unattributed: int, tokens: Mapping[int, int]) -> None:
        pid = int(row["pid"])
        totals = self._totals.setdefault(pid, _Totals())
        totals.launches += int(row["launch_delta"])
        totals.unattributed += unattributed
        totals.output_tokens += tokens.get(pid, 0)
        totals.instance = int(row["instance"]) or totals.instance
        row["launch_total"], row["unattributed_total"] = totals.launches, totals.unattributed
        row["output_tokens_total"], row["instance"] = totals.output_tokens, totals.instance
        row["is_dead"] = not self.is_alive(pid)

    def _thread_deltas(self, threads: Rows) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Launches and unattributed launches of each thread since the last look; the first look gives 0."""
        tids, total, bare = threads["tid"], threads["launch_total"], threads["unattributed_total"]
        told = np.zeros((2, len(tids)), np.uint64)
        if len(self._tids):
            place = np.minimum(np.searchsorted(self._tids, tids), len(self._tids) - 1)
            same = self._tids[place] == tids
            told[0, same], told[1, same] = self._launches[place[same]], self._unattributed[place[same]]
        told[0, told[0] > total] = 0  # the tid is another thread now
        told[1, told[1] > bare] = 0
        if self._is_first:
            told[0], told[1] = total, bare
        self._tids, self._launches, self._unattributed = tids.copy(), total.copy(), bare.copy()
        self._is_first = False
        return total - told[0], bare - told[1]


def _sum_by(slot: NDArray[np.intp], values: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Sums of `values` (N,) by slot → (size,). Exact: integers, not weights of a float histogram."""
    sums = np.zeros(size, np.uint64)
    np.add.at(sums, slot, values)
    return sums


def _tokens_by_pid(output_tokens: Rows) -> dict[int, int]:
    pids, slot = np.unique(output_tokens["pid"], return_inverse=True)
    return dict(zip(pids.tolist(), _sum_by(slot, output_tokens["tokens"], len(pids)).tolist(), strict=True))


def _fill_requests(rows: Rows, requests_open: Rows) -> None:
    if len(requests_open) == 0:
        return
    order = np.argsort(requests_open["started_ns"], kind="stable")
    pids, first, count = np.unique(requests_open["pid"][order], return_index=True, return_counts=True)
    place = np.searchsorted(rows["pid"], pids)
    rows["open_requests"][place] = count
    rows["oldest_request_ns"][place] = requests_open["started_ns"][order][first]
    rows["instance"][place] = requests_open["instance"][order][first]


def _fill_oldest_call(rows: Rows, threads: Rows, slot: NDArray[np.intp]) -> None:
    inside = np.flatnonzero(threads["call"])
    inside = inside[np.argsort(threads["since_ns"][inside], kind="stable")]
    place, first = np.unique(slot[inside], return_index=True)
    oldest = inside[first]
    for target, source in (
        ("call", "call"),
        ("call_since_ns", "since_ns"),
        ("call_tid", "tid"),
        ("call_stage", "stage"),
        ("call_modality", "modality"),
    ):
        rows[target][place] = threads[source][oldest]
