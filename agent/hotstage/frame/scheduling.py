# SPDX-License-Identifier: Apache-2.0
"""Cumulative sums of the scheduler → what was added since the sample before, and means over ten seconds.

By process and by stage × modality. It knows neither maps nor `/proc`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import begins
from hotstage.probes.maps.histograms import slot_upper_seconds
from hotstage.probes.samples import SchedulingSample
from hotstage.stages.labels import StageLabels

WINDOW_NS = 10_000_000_000
MIN_WAITS = 20
"""Below so many waits a quantile is unknown."""

Sums = NDArray[np.float64]
Counts = NDArray[np.uint64]
Codes = NDArray[np.int64]

SLEEP, SLEEP_IN_CALL, WOKEN, PREEMPTED, RECLAIM, VOLUNTARY, INVOLUNTARY, PAGE_FAULTS = range(8)
"""Places in `Sums`: five times in seconds (waits inside and outside of calls together), three counts."""
_PLACES = 8
_UPPER = slot_upper_seconds()


@dataclass(slots=True)
class Added:
    """What one second brought. `waits`: uint64 (242,), scale-3 slots of single waits for a CPU."""

    sums: Sums = field(default_factory=lambda: np.zeros(_PLACES))
    waits: Counts = field(default_factory=lambda: np.zeros(len(_UPPER), np.uint64))


@dataclass(frozen=True, slots=True)
class SchedulingStep:
    """Between two samples. Stages are by (label, modality); work without a stage is under its own label."""

    at_ns: int
    seconds: float
    by_pid: Mapping[int, Sums]
    by_stage: Mapping[tuple[int, int], Added]
    has_page_faults: bool = False
    """Whether they were counted all the time in between."""


@dataclass(frozen=True, slots=True)
class _Second:
    """A step's rows, as arrays: what stages (`label << 8 | modality`) and processes added."""

    step: SchedulingStep
    stages: Codes
    stage_sums: Sums  # (K, 8)
    stage_waits: Counts  # (K, 242)
    pids: Codes
    pid_sums: Sums


class SchedulingRates:
    """Feed it each sample; sums of processes that have gone just stop. Not thread-safe."""

    def __init__(self) -> None:
        self._told = _Told()
        self._at_ns: int | None = None
        self._page_fault_epoch: int | None = None
        self._recent: deque[_Second] = deque()
        self._of_pid: dict[int, Sums] = {}
        self._waits: dict[int, Counts] = {}  # of the stages of `_recent`; integers, so that they add up
        self.step: SchedulingStep | None = None
        """What the last sample added; None before the second one, and while nothing is watched."""

    def take(self, sample: SchedulingSample | None, labels: StageLabels) -> None:
        """Subtract the sample before. None: nothing is watched, and nothing known until it is again."""
        if sample is None:
            self._told, self._at_ns, self.step = _Told(), None, None
            self._recent.clear()
            self._of_pid, self._waits = {}, {}
            return
        moved, sums, waits = self._told.advance(sample)
        if self._at_ns is not None:
            second = self._second(sample, self._at_ns, sample.keys[moved], sums, waits, labels)
            self._append(second)
            self.step = second.step
        while self._recent and sample.at_ns - self._recent[0].step.at_ns >= WINDOW_NS:
            self._drop_oldest()
        self._of_pid = self._by_pid()
        self._at_ns, self._page_fault_epoch = sample.at_ns, sample.page_fault_epoch

    @property
    def seconds(self) -> float:
        """Time that the means below cover; 0 before the second sample."""
        return sum(second.step.seconds for second in self._recent)

    @property
    def has_page_faults(self) -> bool:
        """Whether page faults were counted all that time."""
        return bool(self._recent) and all(second.step.has_page_faults for second in self._recent)

    def of_pids(self, pids: Iterable[int]) -> Sums:
        """Sums of these processes together over the window."""
        return _added(self._of_pid[pid] for pid in set(pids) & self._of_pid.keys())

    def of_all(self) -> Sums:
        return _added(self._of_pid.values())

    def of_stages(self) -> dict[tuple[int, int], Added]:
        """(label, modality) → its sums and waits over the window."""
        if not self._recent:
            return {}
        codes, sums = _grouped(
            np.concatenate([second.stages for second in self._recent]),
            np.concatenate([second.stage_sums for second in self._recent]),
        )
        return {
            (code >> 8, code & 0xFF): Added(added, self._waits[code])
            for code, added in zip(codes.tolist(), sums, strict=True)
        }

    def _append(self, second: _Second) -> None:
        self._recent.append(second)
        for code, waits in zip(second.stages.tolist(), second.stage_waits, strict=True):
            if code in self._waits:
                self._waits[code] += waits
            else:
                self._waits[code] = waits.copy()

    def _drop_oldest(self) -> None:
        second = self._recent.popleft()
        for code, waits in zip(second.stages.tolist(), second.stage_waits, strict=True):
            self._waits[code] -= waits
        gone = self._waits.keys() - {code for each in self._recent for code in each.stages.tolist()}
        for code in gone:
            del self._waits[code]

    def _by_pid(self) -> dict[int, Sums]:
        if not self._recent:
            return {}
        pids = np.concatenate([second.pids for second in self._recent])
        pids, sums = _grouped(pids, np.concatenate([second.pid_sums for second in self._recent]))
        return dict(zip(pids.tolist(), sums, strict=True))

    def _second(
        self,
        sample: SchedulingSample,
        before_ns: int,
        keys: NDArray[np.void],
        sums: Sums,
        waits: Counts,
        labels: StageLabels,
    ) -> _Second:
        """`sums` (M, 8) and `waits` (M, 242): what the rows of `keys`, which have moved, added."""
        codes = np.array(
            [
                labels.label_of(pid, stage) << 8 | modality
                for pid, stage, modality in zip(
                    *(keys[name].tolist() for name in ("tgid", "stage", "modality")), strict=True
                )
            ],
            np.int64,
        )
        stages, stage_sums, stage_waits = _grouped(codes, sums, waits)
        pids, pid_sums = _grouped(keys["tgid"].astype(np.int64), sums)
        epoch = sample.page_fault_epoch
        step = SchedulingStep(
            sample.at_ns,
            (sample.at_ns - before_ns) / 1e9,
            dict(zip(pids.tolist(), pid_sums, strict=True)),
            _by_stage(stages, stage_sums, stage_waits),
            epoch is not None and epoch == self._page_fault_epoch,
        )
        return _Second(step, stages, stage_sums, stage_waits, pids, pid_sums)


class _Told:
    """What has been told of each row. Most stand still from one second to the next, and mostly the same ones
    come in the same order: then nothing is searched, and only what moved is copied.
    """

    def __init__(self) -> None:
        self._keys = b""
        self._sums: Sums = np.zeros((0, _PLACES))
        self._waits: Counts = np.zeros((0, len(_UPPER)), np.uint64)

    def advance(self, sample: SchedulingSample) -> tuple[NDArray[np.intp], Sums, Counts]:
        """(rows that moved (M,), what their sums grew by (M, 8), and their waits (M, 242)); all of it where a
        sum fell: then a new process has come by the pid.
        """
        keys, sums = sample.keys.tobytes(), _sums(sample)
        if keys != self._keys:
            self._find(keys, sample.keys.dtype.itemsize)
        moved = np.flatnonzero((sums != self._sums).any(axis=1))
        now, told = sums[moved], self._sums[moved]
        waits = sample.histograms[sample.stats["histogram_slot"][moved]]
        told_waits = self._waits[moved]
        is_new = (now < told).any(axis=1)
        told[is_new], told_waits[is_new] = 0, 0
        self._sums, self._waits[moved] = sums, waits
        return moved, now - told, waits - told_waits

    def _find(self, keys: bytes, size: int) -> None:
        """What was told of the rows with these keys; nothing of new ones."""
        place_of = {self._keys[at : at + size]: at // size for at in range(0, len(self._keys), size)}
        places = np.array(
            [place_of.get(keys[at : at + size], -1) for at in range(0, len(keys), size)], np.intp
        )
        known = places >= 0
        sums, waits = np.zeros((len(places), _PLACES)), np.zeros((len(places), len(_UPPER)), np.uint64)
        sums[known], waits[known] = self._sums[places[known]], self._waits[places[known]]
        self._keys, self._sums, self._waits = keys, sums, waits


def wait_quantiles(waits: Counts, share: float) -> list[float]:
    """Of each row of (N, 242) the upper edge of the nearest rank's slot in seconds, so at most 9 % above it;
    NaN below `MIN_WAITS`.
    """
    until = np.cumsum(waits, axis=1)  # (N, 242)
    totals = until[:, -1]
    slots = np.count_nonzero(until < np.ceil(share * totals)[:, None], axis=1)
    found: list[float] = np.where(totals < MIN_WAITS, math.nan, _UPPER[slots]).tolist()
    return found


def put_scheduling(
    cell: dict[str, float], sums: Sums, seconds: float, *, has_page_faults: bool = False
) -> None:
    """The columns that a process, an instance, a stage and the host have alike."""
    if seconds <= 0:
        return
    cell["cpu_wait_threads"] = float(sums[WOKEN] + sums[PREEMPTED]) / seconds
    cell["cpu_preempted_threads"] = float(sums[PREEMPTED]) / seconds
    cell["cpu_preemption_rate"] = float(sums[INVOLUNTARY]) / seconds
    cell["call_sleep_threads"] = float(sums[SLEEP_IN_CALL]) / seconds
    cell["reclaim_threads"] = float(sums[RECLAIM]) / seconds
    if has_page_faults:
        cell["page_fault_rate"] = float(sums[PAGE_FAULTS]) / seconds


def _sums(sample: SchedulingSample) -> Sums:
    """(N, 8), a copy."""
    stats = sample.stats
    sums = np.zeros((len(stats), _PLACES))
    sums[:, SLEEP], sums[:, SLEEP_IN_CALL] = stats["sleep_ns"][:, 0], stats["sleep_ns"][:, 1]
    sums[:, WOKEN] = stats["woken_wait_ns"].sum(axis=1)
    sums[:, PREEMPTED] = stats["preempted_wait_ns"].sum(axis=1)
    sums[:, RECLAIM] = stats["reclaim_ns"]
    sums /= 1e9
    sums[:, VOLUNTARY], sums[:, INVOLUNTARY] = stats["voluntary"], stats["involuntary"]
    sums[:, PAGE_FAULTS] = stats["page_faults"]
    return sums


def _grouped(codes: Codes, *rows: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Equal codes (N,) once, ascending, and of each array (N, …) their rows added up."""
    if not len(codes):
        return codes, *rows
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    first = begins(codes)
    return codes[first], *(np.add.reduceat(each[order], first, axis=0) for each in rows)


def _by_stage(codes: Codes, sums: Sums, waits: Counts) -> dict[tuple[int, int], Added]:
    return {
        (code >> 8, code & 0xFF): Added(*added)
        for code, *added in zip(codes.tolist(), sums, waits, strict=True)
    }


def _added(parts: Iterable[Sums]) -> Sums:
    total = np.zeros(_PLACES)
    for part in parts:
        total += part
    return total
