# SPDX-License-Identifier: Apache-2.0
"""Cumulative sums of the scheduler → what was added since the sample before, and means over ten seconds.

By process and by stage × modality. It knows neither maps nor `/proc`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.histograms import slot_upper_seconds
from hotstage.probes.samples import SchedulingSample
from hotstage.stages.labels import StageLabels

WINDOW_NS = 10_000_000_000
MIN_WAITS = 20
"""Below so many waits a quantile is unknown."""

Sums = NDArray[np.float64]
Counts = NDArray[np.uint64]

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


class SchedulingRates:
    """Feed it each sample; sums of processes that have gone just stop. Not thread-safe."""

    def __init__(self) -> None:
        self._before: dict[bytes, tuple[Sums, Counts]] | None = None
        self._at_ns = 0
        self._page_fault_epoch: int | None = None
        self._recent: deque[SchedulingStep] = deque()
        self.step: SchedulingStep | None = None
        """What the last sample added; None before the second one, and while nothing is watched."""

    def take(self, sample: SchedulingSample | None, labels: StageLabels) -> None:
        """Subtract the sample before. None: nothing is watched, and nothing known until it is again."""
        if sample is None:
            self._before, self.step = None, None
            self._recent.clear()
            return
        rows = _rows(sample)
        if self._before is not None:
            self.step = self._subtract(sample, rows, labels)
            self._recent.append(self.step)
        while self._recent and sample.at_ns - self._recent[0].at_ns >= WINDOW_NS:
            self._recent.popleft()
        self._before = {key: (sums, waits) for key, _, sums, waits in rows}
        self._at_ns, self._page_fault_epoch = sample.at_ns, sample.page_fault_epoch

    @property
    def seconds(self) -> float:
        """Time that the means below cover; 0 before the second sample."""
        return sum(step.seconds for step in self._recent)

    @property
    def has_page_faults(self) -> bool:
        """Whether page faults were counted all that time."""
        return bool(self._recent) and all(step.has_page_faults for step in self._recent)

    def of_pids(self, pids: Iterable[int]) -> Sums:
        """Sums of these processes together over the window."""
        wanted = set(pids)
        return _added(sums for step in self._recent for pid, sums in step.by_pid.items() if pid in wanted)

    def of_all(self) -> Sums:
        return _added(sums for step in self._recent for sums in step.by_pid.values())

    def of_stages(self) -> dict[tuple[int, int], Added]:
        """(label, modality) → its sums and waits over the window."""
        found: dict[tuple[int, int], Added] = {}
        for step in self._recent:
            for code, added in step.by_stage.items():
                total = found.setdefault(code, Added())
                total.sums += added.sums
                total.waits += added.waits
        return found

    def _subtract(self, sample: SchedulingSample, rows: list[_Row], labels: StageLabels) -> SchedulingStep:
        by_pid: dict[int, Sums] = {}
        by_stage: dict[tuple[int, int], Added] = {}
        known = self._before or {}
        for key, (pid, stage, modality), sums, waits in rows:
            before = known.get(key)
            if before is not None and before[0].tobytes() == sums.tobytes():
                continue  # most keys stand still from one second to the next
            grew, more = _less(sums, waits, before)
            if not grew.any():
                continue
            by_pid.setdefault(pid, np.zeros(_PLACES))
            by_pid[pid] += grew
            added = by_stage.setdefault((labels.label_of(pid, stage), modality), Added())
            added.sums += grew
            added.waits += more
        epoch = sample.page_fault_epoch
        is_whole = epoch is not None and epoch == self._page_fault_epoch
        return SchedulingStep(sample.at_ns, (sample.at_ns - self._at_ns) / 1e9, by_pid, by_stage, is_whole)


def wait_quantile(waits: Counts, share: float) -> float:
    """Upper edge of the nearest rank's slot in seconds, so at most 9 % above it; NaN below `MIN_WAITS`."""
    total = int(waits.sum())
    if total < MIN_WAITS:
        return math.nan
    return float(_UPPER[int(np.searchsorted(np.cumsum(waits), math.ceil(share * total)))])


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


_Row = tuple[bytes, tuple[int, int, int], Sums, Counts]


def _rows(sample: SchedulingSample) -> list[_Row]:
    """The sample's rows; the histogram's counts are copies, since the next read writes over them."""
    keys, stats = sample.keys, sample.stats
    sums = np.zeros((len(keys), _PLACES))
    sums[:, SLEEP], sums[:, SLEEP_IN_CALL] = stats["sleep_ns"][:, 0], stats["sleep_ns"][:, 1]
    sums[:, WOKEN] = stats["woken_wait_ns"].sum(axis=1)
    sums[:, PREEMPTED] = stats["preempted_wait_ns"].sum(axis=1)
    sums[:, RECLAIM] = stats["reclaim_ns"]
    sums /= 1e9
    sums[:, VOLUNTARY], sums[:, INVOLUNTARY] = stats["voluntary"], stats["involuntary"]
    sums[:, PAGE_FAULTS] = stats["page_faults"]
    waits = sample.histograms[stats["histogram_slot"]]  # a copy, (N, 242)
    raw, size = keys.tobytes(), keys.dtype.itemsize
    columns = (keys[name].tolist() for name in ("tgid", "stage", "modality"))
    return [
        (raw[row * size : (row + 1) * size], code, sums[row], waits[row])
        for row, code in enumerate(zip(*columns, strict=True))
    ]


def _less(sums: Sums, waits: Counts, before: tuple[Sums, Counts] | None) -> tuple[Sums, Counts]:
    """What came since; all of it where a sum fell: then a new process has come by the pid."""
    if before is None or (sums < before[0]).any():
        return sums, waits
    return sums - before[0], waits - before[1]


def _added(parts: Iterable[Sums]) -> Sums:
    total = np.zeros(_PLACES)
    for part in parts:
        total += part
    return total
