# SPDX-License-Identifier: Apache-2.0
"""Exact sums of calls by name and process, kept beyond the life of both the process and its entries in the
kernel.

Pure arithmetic on rows that others read; nothing is looked up here. Layers are never added up: the sums are
of the driver's calls, the others stand beside them.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import grouped
from hotstage.probes.catalogue import calls_by_id, layers_by_id
from hotstage.probes.catalogue.spec import Family, Layer
from hotstage.probes.copies import CopyBook
from hotstage.probes.coverage import CallCount, CallTotals, KernelTotals
from hotstage.probes.maps.graphs import GRAPH_WORK_DTYPE, no_work
from hotstage.probes.maps.kernel import Forgotten
from hotstage.probes.maps.layout import CALLS_MAX

DEPARTED_LIMIT = 1024
"""Processes that have gone and are still told apart; older ones stay in the sums by call."""

CountsByCall = Mapping[int, int]

_IS_RUNTIME = np.zeros(CALLS_MAX, np.bool_)
_IS_RUNTIME[[call_id for call_id, layer in layers_by_id().items() if layer is Layer.RUNTIME]] = True


_FUNCTION_LAUNCHES = frozenset(
    call_id
    for call_id, call in calls_by_id().items()
    if call.family is Family.LAUNCH and layers_by_id()[call_id] is Layer.DRIVER
)


class TotalsBook:
    """What has been taken out of the kernel so far; `sum` adds what is there now. Not thread-safe."""

    def __init__(self) -> None:
        self._departed: OrderedDict[int, dict[int, int]] = OrderedDict()
        self._older: dict[int, int] = defaultdict(int)
        self._names = {call_id: call.name for call_id, call in calls_by_id().items()}
        self._layers = layers_by_id()
        self._graph_work: dict[int, tuple[int, ...]] = {}
        self._copies = CopyBook()

    def keep(self, forgotten: Forgotten) -> None:
        """Take over the last rows of processes that have gone; calls open at their end are counted, as
        abandoned.
        """
        for pid, call, count in _counts(forgotten.keys, forgotten.stats):
            self._add(pid, call, count)
        self._copies.keep(forgotten.keys, forgotten.stats)
        _add_work(self._graph_work, *forgotten.graph_work)
        self.keep_threads(forgotten.threads)

    def keep_threads(self, threads: NDArray[np.void]) -> None:
        """Calls in which a thread ended: made, never to return."""
        for pid, call, count in _open_calls(threads):
            self._add(pid, call, count)

    def sum(
        self,
        keys: NDArray[np.void],
        stats: NDArray[np.void],
        threads: NDArray[np.void],
        lost: int,
        graph_work: tuple[NDArray[np.void], NDArray[np.void]] | None = None,
    ) -> CallTotals:
        """Everything: CALL_KEY_DTYPE and CALL_STAT_DTYPE (N,), THREAD_DTYPE (T,), keys and GRAPH_WORK_DTYPE
        rows as read at one moment.
        """
        counted: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        opened: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for pid, call, count in _counts(keys, stats):
            counted[pid][call] += count
        for pid, call, count in _open_calls(threads):
            counted[pid][call] += count
            opened[pid][call] += count
        for pid, calls in self._departed.items():
            for call, count in calls.items():
                counted[pid][call] += count
        by_call: dict[int, int] = defaultdict(int, self._older)
        open_by_call: dict[int, int] = defaultdict(int)
        for pid, calls in counted.items():
            for call, count in calls.items():
                by_call[call] += count
                open_by_call[call] += opened[pid][call] if pid in opened else 0
        driver = self._of(Layer.DRIVER, by_call)
        by_pid = {pid: self._of(Layer.DRIVER, calls) for pid, calls in sorted(counted.items())}
        return CallTotals(
            counted=sum(driver.values()),
            open=sum(self._of(Layer.DRIVER, open_by_call).values()),
            lost=lost,
            by_call=self._named(driver, open_by_call),
            by_pid={pid: self._named(calls, opened.get(pid, {})) for pid, calls in by_pid.items() if calls},
            other_layers={
                layer.name.lower(): self._named(self._of(layer, by_call), open_by_call)
                for layer in (Layer.RUNTIME, Layer.LIBRARY)
            },
            launched=self._launched(driver, graph_work or no_work()),
            copies=self._copies.sum(keys, stats),
        )

    def _launched(
        self, made: CountsByCall, graph_work: tuple[NDArray[np.void], NDArray[np.void]]
    ) -> KernelTotals:
        """Kernels behind the driver's launches; a graph launch that was captured ran nothing."""
        work = dict(self._graph_work)
        _add_work(work, *graph_work)
        captured, replayed, unknown = (sum(column) for column in zip((0, 0, 0), *work.values(), strict=True))
        calls = sum(count for call, count in made.items() if call in _FUNCTION_LAUNCHES)
        run = calls - sum(row[0] for call, row in work.items() if call in _FUNCTION_LAUNCHES)
        return KernelTotals(None if unknown else run + replayed, captured, replayed, unknown)

    def _of(self, layer: Layer, calls: CountsByCall) -> CountsByCall:
        return {call: n for call, n in calls.items() if self._layers.get(call, Layer.DRIVER) is layer}

    def _named(self, counted: CountsByCall, opened: CountsByCall) -> dict[str, CallCount]:
        return {
            self._names.get(call, f"call_{call}"): CallCount(count, opened.get(call, 0))
            for call, count in sorted(counted.items())
        }

    def _add(self, pid: int, call: int, count: int) -> None:
        calls = self._departed.setdefault(pid, {})
        calls[call] = calls.get(call, 0) + count
        while len(self._departed) > DEPARTED_LIMIT:
            for old_call, old_count in self._departed.popitem(last=False)[1].items():
                self._older[old_call] += old_count


def _add_work(sums: dict[int, tuple[int, ...]], keys: NDArray[np.void], work: NDArray[np.void]) -> None:
    """GRAPH_WORK_DTYPE rows to the sums by call."""
    columns = (work[name].tolist() for name in GRAPH_WORK_DTYPE.names or ())
    for call, *counts in zip(keys["call"].tolist(), *columns, strict=True):
        before = sums.get(call, (0, 0, 0))
        sums[call] = tuple(old + new for old, new in zip(before, counts, strict=True))


def _counts(keys: NDArray[np.void], stats: NDArray[np.void]) -> list[tuple[int, int, int]]:
    """(pid, call, count), stages and devices added up."""
    packed = keys["tgid"].astype(np.uint64) << np.uint64(16) | keys["call"]
    return _grouped(packed, stats["count"])


def _open_calls(threads: NDArray[np.void]) -> list[tuple[int, int, int]]:
    """(pid, call, number of calls in flight), the calls around the innermost one included. Whether one of
    the runtime counts is known at its return only.
    """
    depth = threads["depth"].astype(np.int64)
    inner = threads[depth > 0]
    packed = [inner["tgid"].astype(np.uint64) << np.uint64(16) | inner["call"]]
    for level in range(threads["frames"].shape[1] if len(threads) else 0):
        outer = threads[depth > level + 1]
        packed.append(outer["tgid"].astype(np.uint64) << np.uint64(16) | outer["frames"]["call"][:, level])
    every = np.concatenate(packed)
    every = every[~_IS_RUNTIME[np.minimum(every & np.uint64(0xFFFF), CALLS_MAX - 1).astype(np.int64)]]
    return _grouped(every, np.ones(len(every), np.uint64))


def _grouped(packed: NDArray[np.uint64], counts: NDArray[np.uint64]) -> list[tuple[int, int, int]]:
    """Equal `pid << 16 | call` added up; exact, in integers."""
    groups, index = grouped(packed)
    sums = np.zeros(len(groups), np.uint64)
    np.add.at(sums, index, counts)
    return [
        (int(group) >> 16, int(group) & 0xFFFF, int(count)) for group, count in zip(groups, sums, strict=True)
    ]
