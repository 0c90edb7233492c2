# SPDX-License-Identifier: Apache-2.0
"""Exact sums of calls by name and process, kept beyond the life of both the process and its entries in the
kernel.

Pure arithmetic on rows that others read; nothing is looked up here. Layers are never added up: only the
driver's calls (layer 0) are summed.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.coverage import CallCount, CallTotals
from hotstage.probes.maps.kernel import Forgotten

DEPARTED_LIMIT = 1024
"""Processes that have gone and are still told apart; older ones stay in the sums by call."""

CountsByCall = Mapping[int, int]


class TotalsBook:
    """What has been taken out of the kernel so far; `sum` adds what is there now. Not thread-safe."""

    def __init__(self) -> None:
        self._departed: OrderedDict[int, dict[int, int]] = OrderedDict()
        self._older: dict[int, int] = defaultdict(int)
        self._names = {call_id: call.name for call_id, call in calls_by_id().items()}

    def keep(self, forgotten: Forgotten) -> None:
        """Take over the last rows of processes that have gone; calls open at their end are counted, as
        abandoned.
        """
        for pid, call, count in _counts(forgotten.keys, forgotten.stats):
            self._add(pid, call, count)
        self.keep_threads(forgotten.threads)

    def keep_threads(self, threads: NDArray[np.void]) -> None:
        """Calls in which a thread ended: made, never to return."""
        for pid, call, count in _open_calls(threads):
            self._add(pid, call, count)

    def sum(
        self, keys: NDArray[np.void], stats: NDArray[np.void], threads: NDArray[np.void], lost: int
    ) -> CallTotals:
        """Everything: CALL_KEY_DTYPE and CALL_STAT_DTYPE (N,), THREAD_DTYPE (T,) as read at one moment."""
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
        return CallTotals(
            counted=sum(by_call.values()),
            open=sum(open_by_call.values()),
            lost=lost,
            by_call=self._named(by_call, open_by_call),
            by_pid={pid: self._named(calls, opened.get(pid, {})) for pid, calls in sorted(counted.items())},
        )

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


def _counts(keys: NDArray[np.void], stats: NDArray[np.void]) -> list[tuple[int, int, int]]:
    """(pid, call, count) of driver calls, stages and devices added up."""
    is_driver = keys["layer"] == 0
    packed = keys["tgid"][is_driver].astype(np.uint64) << np.uint64(16) | keys["call"][is_driver]
    return _grouped(packed, stats["count"][is_driver])


def _open_calls(threads: NDArray[np.void]) -> list[tuple[int, int, int]]:
    """(pid, call, number of calls in flight), the calls around the innermost one included."""
    depth = threads["depth"].astype(np.int64)
    inner = threads[depth > 0]
    packed = [inner["tgid"].astype(np.uint64) << np.uint64(16) | inner["call"]]
    for level in range(threads["frames"].shape[1] if len(threads) else 0):
        outer = threads[depth > level + 1]
        packed.append(outer["tgid"].astype(np.uint64) << np.uint64(16) | outer["frames"]["call"][:, level])
    every = np.concatenate(packed)
    return _grouped(every, np.ones(len(every), np.uint64))


def _grouped(packed: NDArray[np.uint64], counts: NDArray[np.uint64]) -> list[tuple[int, int, int]]:
    """Equal `pid << 16 | call` added up; exact, in integers."""
    groups, index = np.unique(packed, return_inverse=True)
    sums = np.zeros(len(groups), np.uint64)
    np.add.at(sums, index, counts)
    return [
        (int(group) >> 16, int(group) & 0xFFFF, int(count)) for group, count in zip(groups, sums, strict=True)
    ]
