# SPDX-License-Identifier: Apache-2.0
"""What the probes cost each process, and the levels that follow from it: counts and CPU times in, steps out.

Cost is an estimate: calls by class × what a call of the class was calibrated to cost. The arithmetic is here,
the judgement in `steps`, and whoever asks carries out what comes of it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotstage.config.governor import GovernorConfig
from hotstage.grouping import distinct
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.catalogue.spec import Effect
from hotstage.probes.loader.base import PointKind
from hotstage.probes.maps.layout import CALLS_MAX
from hotstage.probes.maps.levels import Level
from hotstage.probes.restraint.costs import Costs
from hotstage.probes.restraint.steps import Judged, Steps
from hotstage.small_files import read_small

_LEAST_CPU_TICKS = 5
"""CPU time comes in ticks of mostly 10 ms: below five of them a share is a guess."""
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Hits:
    """Cumulative counts of one process. `cpu_ns` and `cpu_step_ns`, its resolution, are of user and system
    time.
    """

    at_ns: int
    launches: int = 0
    timed: int = 0
    """Calls that counting alone would let return unseen."""
    kept: int = 0
    """Timed at every counting level: they change state."""
    stepped: int = 0
    marks: int = 0
    nvtx: int = 0
    page_faults: int = 0
    told: int = 0
    """Slow and failing ones of all these, told one by one."""
    cpu_ns: int = 0

    def since(self, before: Hits) -> Hits:
        """What was added; never negative, since counters of a process may begin anew."""
        return Hits(
            self.at_ns - before.at_ns,
            *(
                max(0, getattr(self, name) - getattr(before, name))
                for name in (
                    *("launches", "timed", "kept", "stepped", "marks", "nvtx", "page_faults", "told"),
                    "cpu_ns",
                )
            ),
        )


@dataclass(frozen=True, slots=True)
class GovernedProcess:
    """One process as coverage shows it. `cost_ratio` is of its CPU time, over the last window; None: unknown.

    `since_ns`: when its level was last moved, CLOCK_MONOTONIC.
    """

    pid: int
    level: str
    since_ns: int | None
    reason: str | None
    cost_ratio: float | None
    cost_cores: float | None
    retry_ns: int | None = None


@dataclass(frozen=True, slots=True)
class GovernorView:
    """What the governor knows, for coverage: what is allowed, what calls cost, and each process."""

    enabled: bool
    limit_ratio: float
    detach_ratio: float
    costs: Costs
    processes: tuple[GovernedProcess, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A level that has just moved."""

    pid: int
    before: Level
    level: Level
    reason: str


@dataclass(slots=True)
class _Known:
    identity: int
    steps: Steps
    window: deque[Hits] = field(default_factory=deque)
    ratio: float | None = None
    cores: float | None = None


def cost_ns(hits: Hits, costs: Costs, level: Level) -> float | None:
    """What these calls cost at that level, None where it is not known."""
    if not costs.is_known:
        return None
    assert costs.launch is not None
    timed = {Level.tails_only: costs.timed_tails, Level.counts_only: costs.timed_counts}
    kept = costs.timed_tails if level >= Level.tails_only else costs.timed
    parts = (
        (hits.launches, costs.launch),
        (hits.timed, timed.get(level, costs.timed)),
        (hits.kept, kept),
        (hits.marks, costs.mark),
        (hits.nvtx, costs.nvtx),
        (hits.stepped, costs.step),
        # nobody's page faults are counted while any process is below this level
        (hits.page_faults if level is Level.full else 0, costs.page_fault),
        (hits.told, costs.told if level < Level.no_stacks else costs.told_bare),
    )
    if any(count and cost is None for count, cost in parts):
        return None
    return sum(count * cost for count, cost in parts if cost is not None)


class CallClasses:
    """Which call ids are of which class: a table over the catalogue."""

    def __init__(self) -> None:
        self._launch = np.zeros(CALLS_MAX, np.bool_)
        self._kept = np.zeros(CALLS_MAX, np.bool_)
        for call_id, call in calls_by_id().items():
            self._launch[call_id] = call.kind is PointKind.LAUNCH
            self._kept[call_id] = call.effect is not Effect.NONE or call.kind is not PointKind.TIMED

    def hits(
        self,
        keys: NDArray[np.void],
        stats: NDArray[np.void],
        stepped: Callable[[int], Collection[int]],
        at_ns: int,
    ) -> dict[int, Hits]:
        """pid → its cumulative counts; `stepped(pid)` are ids of its calls that pay a single step."""
        found: dict[int, Hits] = {}
        call = np.minimum(keys["call"], CALLS_MAX - 1)
        is_launch, is_kept = self._launch[call], self._kept[call]
        for pid in distinct(keys["tgid"]).tolist():
            mine = keys["tgid"] == pid
            counts, calls = stats["count"][mine], call[mine]
            slow = np.isin(calls, np.fromiter(stepped(pid), np.uint16))
            found[pid] = Hits(
                at_ns,
                launches=int(counts[is_launch[mine]].sum()),
                timed=int(counts[~is_launch[mine] & ~is_kept[mine]].sum()),
                kept=int(counts[~is_launch[mine] & is_kept[mine]].sum()),
                stepped=int(counts[slow].sum()),
            )
        return found


class Governor:
    """`advance` once a second with everything; the steps that follow. Not thread-safe."""

    def __init__(self, config: GovernorConfig, costs: Costs) -> None:
        self._config = config
        self._window_ns = round(config.window_seconds * _NS)
        self._known: dict[int, _Known] = {}
        self.costs = costs

    def advance(self, at_ns: int, hits: Mapping[int, tuple[int, Hits]]) -> list[Step]:
        """`hits`: pid → (identity of its life, cumulative counts); a process that is missing has gone."""
        self._known = {pid: known for pid, known in self._known.items() if pid in hits}
        steps = []
        for pid, (identity, now) in hits.items():
            known = self._known.get(pid)
            if known is None or known.identity != identity:
                known = self._known[pid] = _Known(identity, Steps(self._config))
            judged = self._judge(known, now)
            before = known.steps.level
            if self._config.enabled and known.steps.advance(judged):
                known.window.clear()  # what comes is judged at its own level
                steps.append(Step(pid, before, known.steps.level, known.steps.reason))
        return steps

    def rest(self) -> None:
        """Nothing is counted: what probes cost is unknown until a second of counts has come again."""
        for known in self._known.values():
            known.window.clear()
            known.ratio = known.cores = None

    def spared(self) -> str | None:
        """Why page faults are not to be counted: a tracepoint is no process's own, so the first step of any
        process takes it from all; None while every process is at level `full`.
        """
        below = [(pid, known.steps) for pid, known in self._known.items() if known.steps.level > Level.full]
        if not below:
            return None
        pid, steps = below[0]
        return f"process {pid} is at level {steps.level.name}: {steps.reason}"

    def view(self) -> GovernorView:
        """As of the last second; the dearest process first."""
        told = [
            GovernedProcess(
                pid,
                known.steps.level.name,
                known.steps.since_ns,
                known.steps.reason or None,
                known.ratio,
                known.cores,
                known.steps.retry_ns(),
            )
            for pid, known in self._known.items()
        ]
        ordered = sorted(told, key=lambda each: (-(each.cost_ratio or 0.0), each.pid))
        config = self._config
        return GovernorView(
            config.enabled, config.limit_ratio, config.detach_ratio, self.costs, tuple(ordered)
        )

    def _judge(self, known: _Known, now: Hits) -> Judged:
        window = known.window
        window.append(now)
        while len(window) > 2 and now.at_ns - window[1].at_ns >= self._window_ns:
            window.popleft()
        grew = now.since(window[0])
        level = known.steps.level
        known.ratio = known.cores = None
        if grew.at_ns <= 0 or level is Level.detached:
            return Judged(now.at_ns, grew.at_ns, None)
        cost = cost_ns(grew, self.costs, level)
        known.cores = None if cost is None else cost / grew.at_ns
        if cost is None or grew.cpu_ns < _LEAST_CPU_TICKS * _NS // _TICKS_PER_SECOND:
            return Judged(now.at_ns, grew.at_ns, None, known.cores)
        ratios: dict[Level, float] = {
            each: (cost_ns(grew, self.costs, each) or 0.0) / grew.cpu_ns
            for each in Level
            if each is not Level.detached
        }
        known.ratio = ratios[level]
        return Judged(now.at_ns, grew.at_ns, ratios, known.cores)


_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_of(proc_root: Path, pid: int) -> tuple[int, int] | None:
    """(start time in ticks, user + system time in ns) of a process; None when it has gone."""
    try:
        fields = read_small(f"{proc_root}/{pid}/stat").rpartition(b")")[2].split()
        return int(fields[19]), (int(fields[11]) + int(fields[12])) * (_NS // _TICKS_PER_SECOND)
    except (OSError, IndexError, ValueError):
        return None
