# SPDX-License-Identifier: Apache-2.0
"""Cumulative call counters → rates over the last ten seconds, per process and per stage × modality."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import begins, distinct
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.catalogue.spec import Family, Layer
from hotstage.probes.maps.layout import CALLS_MAX
from hotstage.probes.samples import CallSample
from hotstage.stages.labels import StageLabels
from hotstage.stages.pulse import Rows
from hotstage.stages.stage import NO_STAGE, OWN_STAGES

Key = TypeVar("Key", bound=Hashable)

WINDOW_NS = 10_000_000_000

_NONE_LEFT = 1e-6
"""Shares of batches are no whole numbers: their sums come back to nearly nothing."""
WAITS = {
    "sync": {Family.SYNC, Family.EVENT_WAIT},
    "copy": {Family.COPY, Family.MEMSET},
    "alloc": {Family.ALLOC, Family.FREE},
}
"""What a call waits for, in the order of `Counts`: the GPU's work, data, memory."""
_COUNTED = (
    "calls",
    "launches",
    "unattributed",
    "errors",
    "errors_oom",
    "sync_ns",
    "copy_ns",
    "alloc_ns",
    "graph_launches",
    "graph_kernels",
    "unknown_graphs",
)
_MOVING = [_COUNTED.index(name) for name in ("calls", "sync_ns", "copy_ns", "alloc_ns")]
"""A call that returns is not counted again, so its time may come without a count."""

_MOVED = ("pid", "batch_stage", "batch_modality", "stage", "modality", "launches")

_Totals = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""pid << 16 | stage << 8 | modality (G,), ascending, and their counts (G, 11) in the order of `Counts`."""


@dataclass(slots=True)
class Counts:
    """What was counted in an interval. Times are of calls that returned in it, all threads together.

    `graph_launches` ran, `graph_kernels` are what those replayed whose kernels are known, `unknown_graphs`
    the others.
    """

    calls: float = 0
    launches: float = 0
    unattributed: float = 0
    errors: float = 0
    errors_oom: float = 0
    sync_ns: int = 0
    copy_ns: int = 0
    alloc_ns: int = 0
    graph_launches: float = 0
    graph_kernels: float = 0
    unknown_graphs: float = 0

    def add(self, other: Counts, times: int = 1) -> None:
        """`times` -1 takes it out again; whole numbers, so nothing is left then."""
        self.calls += times * other.calls
        self.launches += times * other.launches
        self.unattributed += times * other.unattributed
        self.errors += times * other.errors
        self.errors_oom += times * other.errors_oom
        self.sync_ns += times * other.sync_ns
        self.copy_ns += times * other.copy_ns
        self.alloc_ns += times * other.alloc_ns
        self.graph_launches += times * other.graph_launches
        self.graph_kernels += times * other.graph_kernels
        self.unknown_graphs += times * other.unknown_graphs

    def rate(self, name: str, seconds: float) -> float:
        """Of one of these counts, a second; what shares of batches leave of nothing is 0."""
        count = float(getattr(self, name))
        return count / seconds if count > _NONE_LEFT else 0.0

    @property
    def is_nothing(self) -> bool:
        """A call that returns is not counted again, so its time may come without a count."""
        return abs(self.calls) < _NONE_LEFT and not (self.sync_ns or self.copy_ns or self.alloc_ns)


@dataclass(slots=True)
class _Interval:
    at_ns: int
    seconds: float
    by_pid: dict[int, Counts] = field(default_factory=dict)
    by_stage: dict[tuple[int, int], Counts] = field(default_factory=dict)


class CallRates:
    """Feed it each CallSample; counters of processes that have gone just stop. Not thread-safe."""

    def __init__(self) -> None:
        self._is_launch = _table({Family.LAUNCH, Family.GRAPH_LAUNCH})
        self._is_graph = _table({Family.GRAPH_LAUNCH})
        self._is_mark = _table({Family.MARK})
        self._waits = [_table(families) for families in WAITS.values()]
        self._before: _Totals | None = None
        self._at_ns = 0
        self._recent: deque[_Interval] = deque()
        # Sums over `_recent`, kept up to date: most intervals stay from one second to the next.
        self._by_pid: dict[int, Counts] = {}
        self._by_stage: dict[tuple[int, int], Counts] = {}

    def take(
        self, sample: CallSample, labels: StageLabels | None = None, shares: Sequence[Rows] = ()
    ) -> None:
        """Subtract the sample before; the first one is the baseline, and a sample seen already is ignored.

        `labels`: of the stages that processes made up. `shares`: SHARE_DTYPE, of batches that ended since:
        the kernel counted their launches under the batch's stage, here they go to their members'.
        """
        labels = labels or StageLabels()
        if sample.at_ns == self._at_ns:
            return
        now = self._grouped(sample)
        if self._before is not None:
            codes, grew = _grown(self._before, now)
            interval = _Interval(
                sample.at_ns,
                (sample.at_ns - self._at_ns) / 1e9,
                {int(pid): counts for pid, counts in _summed(codes >> np.uint64(16), grew)},
                {
                    (int(code) >> 8, int(code) & 0xFF): counts
                    for code, counts in _summed(_labelled(codes, labels), grew)
                },
            )
            _move_shares(interval.by_stage, (codes, grew), shares, labels)
            self._recent.append(interval)
            self._add(interval, 1)
        while self._recent and sample.at_ns - self._recent[0].at_ns >= WINDOW_NS:
            self._add(self._recent.popleft(), -1)
        self._before, self._at_ns = now, sample.at_ns

    def rest(self) -> None:
        """Nothing is seen: what comes after is counted from its first sample on."""
        self._before = None
        self._recent.clear()
        self._by_pid.clear()
        self._by_stage.clear()

    @property
    def seconds(self) -> float:
        """Time that the counts below cover; 0 before the second sample."""
        return sum(interval.seconds for interval in self._recent)

    def of_pids(self, pids: Iterable[int]) -> Counts:
        """Counts of these processes together."""
        total = Counts()
        for pid in pids:
            if pid in self._by_pid:
                total.add(self._by_pid[pid])
        return total

    def of_all(self) -> Counts:
        return self.of_pids(self._by_pid)

    def of_stages(self) -> dict[tuple[int, int], Counts]:
        """(label, modality) → counts, to be read only; launches without a stage are not here."""
        return {code: counts for code, counts in self._by_stage.items() if code[0] != NO_STAGE}

    def _add(self, interval: _Interval, times: int) -> None:
        _add_each(self._by_pid, interval.by_pid, times)
        _add_each(self._by_stage, interval.by_stage, times)

    def _grouped(self, sample: CallSample) -> _Totals:
        """Cumulative counts by pid, stage and modality. Marks are not calls, and of the layers of a process
        only one counts: the runtime where its driver is not seen.
        """
        keys, stats = sample.keys, sample.stats
        wanted = ~self._is_mark[np.minimum(keys["call"], CALLS_MAX - 1)]
        is_driver = wanted & (keys["layer"] == Layer.DRIVER)
        has_driver = np.isin(keys["tgid"], distinct(keys["tgid"][is_driver]))
        wanted &= is_driver | ((keys["layer"] == Layer.RUNTIME) & ~has_driver)
        keys, stats = keys[wanted], stats[wanted]
        codes = _code_of(keys)
        order = codes.argsort(kind="stable")
        keys, stats, codes = keys.take(order), stats.take(order), codes[order]
        first = begins(codes)
        known = codes[first]
        call = np.minimum(keys["call"], CALLS_MAX - 1)
        launches = np.where(self._is_launch[call], stats["count"], 0)
        bare = np.where(keys["stage"] == NO_STAGE, launches, 0)
        waits = [np.where(is_wait[call], stats["total_ns"], 0) for is_wait in self._waits]
        graphs = np.where(self._is_graph[call], stats["count"], 0)
        totals = np.zeros((len(known), len(_COUNTED)), np.int64)
        if not len(known):
            return known, totals
        counted = (stats["count"], launches, bare, stats["errors"], stats["errors_oom"], *waits, graphs)
        rows = np.array(counted, np.int64)
        totals[:, : len(rows)] = np.add.reduceat(rows, first, axis=1).T
        captured, kernels, unknown = self._graph_work(sample, known)
        totals[:, -3] -= captured
        totals[:, -2], totals[:, -1] = kernels, unknown
        return known, totals

    def _graph_work(self, sample: CallSample, known: NDArray[np.uint64]) -> NDArray[np.int64]:
        """(3, known) of `known` codes: graph launches that were captured, kernels that others replayed,
        and launches of graphs whose kernels nobody knows.
        """
        keys, work = sample.graphs
        found = np.zeros((3, len(known)), np.int64)
        if not len(known):
            return found
        code = _code_of(keys)
        at = np.minimum(np.searchsorted(known, code), len(known) - 1)
        is_graph = self._is_graph[np.minimum(keys["call"], CALLS_MAX - 1)] & (known[at] == code)
        for row, name in enumerate(("captured", "kernels", "unknown")):
            np.add.at(found[row], at[is_graph], work[name][is_graph].astype(np.int64))
        return found


def _grown(before: _Totals, now: _Totals) -> _Totals:
    """What came since, of those that moved. A sum that fell adds nothing."""
    codes, totals = now
    known, told = before
    grew = totals.copy()
    if len(known):
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        is_known = known[at] == codes
        grew[is_known] = np.maximum(totals[is_known] - told[at[is_known]], 0)
    has_moved = grew[:, _MOVING].any(axis=1)
    return codes[has_moved], grew[has_moved]


def _labelled(codes: NDArray[np.uint64], labels: StageLabels) -> NDArray[np.uint64]:
    """pid << 16 | stage << 8 | modality → label << 8 | modality; pinned stages are their own labels."""
    labelled = codes & np.uint64(0xFFFF)
    stage = labelled >> np.uint64(8)
    for row in np.flatnonzero((stage >= OWN_STAGES.start) & (stage < OWN_STAGES.stop)).tolist():
        label = labels.label_of(int(codes[row]) >> 16, int(stage[row]))
        labelled[row] = label << 8 | int(codes[row]) & 0xFF
    return labelled


def _summed(codes: NDArray[np.uint64], grew: NDArray[np.int64]) -> Iterable[tuple[int, Counts]]:
    """Rows of one code added up."""
    if not len(codes):
        return ()
    order = codes.argsort(kind="stable")
    codes = codes[order]
    first = begins(codes)
    sums = np.add.reduceat(grew[order], first, axis=0)
    return ((code, Counts(*row)) for code, row in zip(codes[first].tolist(), sums.tolist(), strict=True))


def _code_of(keys: NDArray[np.void]) -> NDArray[np.uint64]:
    """pid << 16 | stage << 8 | modality."""
    code: NDArray[np.uint64] = (
        keys["tgid"].astype(np.uint64) << 16 | keys["stage"].astype(np.uint64) << 8 | keys["modality"]
    )
    return code


def _move_shares(
    by_stage: dict[tuple[int, int], Counts],
    grown: _Totals,
    shares: Sequence[Rows],
    labels: StageLabels,
) -> None:
    """Launches of batches from the stage that most of a batch was for to the stages of its members, and as
    large a part of that stage's graphs.
    """
    moved: dict[tuple[int, ...], float] = {}
    for rows in shares:
        is_other = (rows["stage"] != rows["batch_stage"]) | (rows["modality"] != rows["batch_modality"])
        other = np.flatnonzero(is_other)
        for *key, launches in zip(*(rows[name][other].tolist() for name in _MOVED), strict=True):
            moved[tuple(key)] = moved.get(tuple(key), 0.0) + launches
    for (pid, batch_stage, batch_modality, stage, modality), launches in moved.items():
        batch = _counts_of(grown, pid << 16 | batch_stage << 8 | batch_modality)
        part = min(1.0, launches / batch.launches) if batch.launches else 0.0
        graphs = (part * each for each in (batch.graph_launches, batch.graph_kernels, batch.unknown_graphs))
        share = Counts(launches, launches, 0, 0, 0, 0, 0, 0, *graphs)
        for code, sign in (((batch_stage, batch_modality), -1), ((stage, modality), 1)):
            label = labels.label_of(pid, code[0]), code[1]
            by_stage.setdefault(label, Counts()).add(share, sign)


def _counts_of(grown: _Totals, code: int) -> Counts:
    codes, counts = grown
    at = int(np.searchsorted(codes, np.uint64(code)))
    return Counts(*counts[at].tolist()) if at < len(codes) and int(codes[at]) == code else Counts()


def _add_each(totals: dict[Key, Counts], counts: Mapping[Key, Counts], times: int) -> None:
    for key, each in counts.items():
        total = totals.setdefault(key, Counts())
        total.add(each, times)
        if total.is_nothing:
            del totals[key]


def _table(families: set[Family]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Call id → whether it is of one of the families."""
    table = np.zeros(CALLS_MAX, np.bool_)
    for call_id, call in calls_by_id().items():
        table[call_id] = call.family in families
    return table
