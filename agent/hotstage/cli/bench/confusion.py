# SPDX-License-Identifier: Apache-2.0
"""Launches as they were made beside launches as they were counted: which had the right stage. Pure.

A count says how many calls had which stage, not which calls. So the simulated server makes every stage's
launches in a *cell* of its own, by process, function and device: within a cell that one stage made, whatever
is counted for another stage is wrong, and the overlap of both counts is exactly the number of right ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.samples import CallSample
from hotstage.stages.stage import NO_STAGE, stage_name

LAUNCH_NAMES = {call.call_id: call.name for call in CUDA_DRIVER.calls if call.is_launch_class}


class Cell(NamedTuple):
    """Where a launch was made: the process, the function's name, the device's ordinal in that process."""

    pid: int
    function: str
    device: int


Launches = Mapping[Cell, Mapping[str | None, int]]
"""Launch-class calls by cell and stage; None is no stage."""


@dataclass(frozen=True, slots=True)
class StageScore:
    """One stage's launches: made, and counted for this very stage."""

    stage: str | None
    made: int
    right: int


@dataclass(frozen=True, slots=True)
class Confusion:
    """The verdict on one run. `shared` counts calls in cells that more than one stage made: there two
    errors that swap stages would cancel out.
    """

    made: int
    right: int
    unattributed: int
    shared: int
    wrong: int
    """Counted for a stage that did not make them."""
    stages: tuple[StageScore, ...]

    @property
    def accuracy(self) -> float | None:
        """Share of launch-class calls with the right stage; None of none."""
        return self.right / self.made if self.made else None

    def accuracy_of(self, stages: Collection[str]) -> float | None:
        """The same of the launches that these stages made."""
        scores = [score for score in self.stages if score.stage in stages]
        made = sum(score.made for score in scores)
        return sum(score.right for score in scores) / made if made else None

    @property
    def wrong_ratio(self) -> float | None:
        """Share of launches with a wrong stage among those that were given one; None of none."""
        told = self.made - self.unattributed
        return self.wrong / told if told else None

    @property
    def unattributed_ratio(self) -> float | None:
        """Share of launch-class calls without a stage; None of none."""
        return self.unattributed / self.made if self.made else None


def made_launches(rows: Iterable[Mapping[str, Any]]) -> Launches:
    """`launches` of a simulated host's truth file."""
    found: dict[Cell, Counter[str | None]] = defaultdict(Counter)
    for row in rows:
        found[Cell(row["pid"], row["function"], row["device"])][row["stage"]] += row["made"]
    return found


def counted_launches(sample: CallSample, pids: Iterable[int]) -> Launches:
    """The same of what the probes counted in these processes."""
    found: dict[Cell, Counter[str | None]] = defaultdict(Counter)
    ours = set(pids)
    for key, stat in zip(sample.keys, sample.stats, strict=True):
        name = LAUNCH_NAMES.get(int(key["call"]))
        if name is not None and int(key["tgid"]) in ours:
            stage = int(key["stage"])
            told = None if stage == NO_STAGE else stage_name(stage)
            found[Cell(int(key["tgid"]), name, int(key["device"]))][told] += int(stat["count"])
    return found


def compare(made: Launches, counted: Launches) -> Confusion:
    """How many launches were counted for the stage that made them, cell by cell."""
    total: Counter[str | None] = Counter()
    right: Counter[str | None] = Counter()
    shared = 0
    for cell, stages in made.items():
        shared += sum(stages.values()) if len(stages) > 1 else 0
        for stage, times in stages.items():
            total[stage] += times
            right[stage] += min(times, counted.get(cell, {}).get(stage, 0))
    scores = (StageScore(stage, times, right[stage]) for stage, times in total.items())
    return Confusion(
        made=total.total(),
        right=right.total(),
        unattributed=sum(stages.get(None, 0) for stages in counted.values()),
        shared=shared,
        wrong=sum(_wrong(made.get(cell, {}), stages) for cell, stages in counted.items()),
        stages=tuple(sorted(scores, key=lambda score: -score.made)),
    )


def _wrong(made: Mapping[str | None, int], counted: Mapping[str | None, int]) -> int:
    return sum(max(0, times - made.get(stage, 0)) for stage, times in counted.items() if stage is not None)
