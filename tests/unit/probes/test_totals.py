# SPDX-License-Identifier: Apache-2.0
"""Counted = returned + abandoned + open, through the death of processes; layers are never added."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.coverage import CallCount, KernelTotals
from hotstage.probes.maps.graphs import GRAPH_WORK_DTYPE
from hotstage.probes.maps.kernel import Forgotten
from hotstage.probes.maps.layout import (
    CALL_KEY_DTYPE,
    CALL_STAT_DTYPE,
    REQUEST_DTYPE,
    THREAD_DTYPE,
)
from hotstage.probes.totals import DEPARTED_LIMIT, TotalsBook

LAUNCH, GRAPH_LAUNCH, SYNC, EVENT = 1, 4, 64, 65
CUDA_MALLOC, ALL_REDUCE = 200, 288


def rows(*counts: tuple[int, int, int]) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """(pid, call, count) → keys and stats."""
    keys, stats = np.zeros(len(counts), CALL_KEY_DTYPE), np.zeros(len(counts), CALL_STAT_DTYPE)
    for index, (pid, call, count) in enumerate(counts):
        keys[index]["tgid"], keys[index]["call"] = pid, call
        keys[index]["stage"] = index
        stats[index]["count"] = count
    return keys, stats


def thread(pid: int, *calls: int) -> NDArray[np.void]:
    """A thread with calls in flight, outermost first."""
    row = np.zeros(1, THREAD_DTYPE)
    row["tgid"], row["depth"] = pid, len(calls)
    if calls:
        row["call"] = calls[-1]
    for level, call in enumerate(calls[:-1]):
        row["frames"]["call"][0, level] = call
    return row


def gone(pid_rows: tuple[NDArray[np.void], NDArray[np.void]], threads: NDArray[np.void]) -> Forgotten:
    return Forgotten(*pid_rows, threads, np.zeros(0, REQUEST_DTYPE))


NOBODY = np.zeros(0, THREAD_DTYPE)


def test_stages_of_one_call_are_added_and_processes_told_apart() -> None:
    totals = TotalsBook().sum(*rows((7, LAUNCH, 11), (7, LAUNCH, 2), (8, LAUNCH, 5), (8, SYNC, 3)), NOBODY, 4)
    assert totals.by_pid[7] == {"cuLaunchKernel": CallCount(13, 0)}
    assert totals.by_call == {"cuLaunchKernel": CallCount(18, 0), "cuStreamSynchronize": CallCount(3, 0)}
    assert (totals.counted, totals.open, totals.lost) == (21, 0, 4)


def test_calls_in_flight_are_counted_at_every_depth() -> None:
    totals = TotalsBook().sum(*rows((7, SYNC, 10)), thread(7, SYNC, EVENT), 0)
    assert totals.by_call == {"cuStreamSynchronize": CallCount(11, 1), "cuEventSynchronize": CallCount(1, 1)}
    assert (totals.counted, totals.open) == (12, 2)


def test_the_dead_stay_counted_and_their_open_calls_end() -> None:
    book = TotalsBook()
    book.keep(gone(rows((7, SYNC, 10)), thread(7, SYNC)))
    totals = book.sum(*rows((8, SYNC, 1)), NOBODY, 0)
    assert totals.by_pid[7] == {"cuStreamSynchronize": CallCount(11, 0)}
    assert (totals.counted, totals.open) == (12, 0)


def test_many_dead_are_folded_into_the_sums_by_call() -> None:
    book = TotalsBook()
    for pid in range(1, DEPARTED_LIMIT + 11):
        book.keep(gone(rows((pid, LAUNCH, 2)), NOBODY))
    totals = book.sum(*rows(), NOBODY, 0)
    assert totals.counted == 2 * (DEPARTED_LIMIT + 10)
    assert len(totals.by_pid) == DEPARTED_LIMIT


def test_other_layers_are_told_and_never_added_to_the_drivers() -> None:
    keys, stats = rows((7, LAUNCH, 11), (7, CUDA_MALLOC, 5), (7, ALL_REDUCE, 3))
    totals = TotalsBook().sum(keys, stats, NOBODY, 0)
    assert (totals.counted, totals.by_call) == (11, {"cuLaunchKernel": CallCount(11, 0)})
    assert totals.other_layers == {
        "runtime": {"cudaMalloc": CallCount(5, 0)},
        "library": {"ncclAllReduce": CallCount(3, 0)},
    }


def test_a_call_of_the_runtime_in_flight_may_never_count() -> None:
    totals = TotalsBook().sum(*rows(), thread(7, ALL_REDUCE, CUDA_MALLOC, SYNC), 0)
    assert (totals.counted, totals.open) == (1, 1)
    assert totals.other_layers == {"runtime": {}, "library": {"ncclAllReduce": CallCount(1, 1)}}


def test_large_counts_are_exact() -> None:
    huge = (1 << 60) + 1
    assert TotalsBook().sum(*rows((7, LAUNCH, huge), (7, LAUNCH, 1)), NOBODY, 0).counted == huge + 1


def test_a_call_without_a_name_is_shown_by_its_id() -> None:
    assert list(TotalsBook().sum(*rows((7, 500, 1)), NOBODY, 0).by_call) == ["call_500"]


def graph_work(*rows_of: tuple[int, int, int, int, int]) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """(pid, call, captured, kernels, unknown) → keys and rows."""
    keys, work = np.zeros(len(rows_of), CALL_KEY_DTYPE), np.zeros(len(rows_of), GRAPH_WORK_DTYPE)
    for index, (pid, call, *counts) in enumerate(rows_of):
        keys[index]["tgid"], keys[index]["call"] = pid, call
        work[index] = tuple(counts)
    return keys, work


def test_captured_launches_run_when_their_graph_does() -> None:
    book, work = TotalsBook(), graph_work((7, LAUNCH, 40, 0, 0), (7, GRAPH_LAUNCH, 1, 400, 0))
    made = rows((7, LAUNCH, 100), (7, GRAPH_LAUNCH, 11), (7, SYNC, 3))
    assert book.sum(*made, NOBODY, 0, work).launched == KernelTotals(460, 41, 400, 0)
    book.keep(Forgotten(*made, NOBODY, np.zeros(0, REQUEST_DTYPE), work))
    assert book.sum(*rows(), NOBODY, 0).launched == KernelTotals(460, 41, 400, 0)


def test_kernels_are_unknown_where_a_graph_is() -> None:
    totals = TotalsBook().sum(*rows((7, GRAPH_LAUNCH, 2)), NOBODY, 0, graph_work((7, GRAPH_LAUNCH, 0, 0, 2)))
    assert totals.launched == KernelTotals(None, 0, 0, 2)
