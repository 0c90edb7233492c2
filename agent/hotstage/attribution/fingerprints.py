# SPDX-License-Identifier: Apache-2.0
"""Which stage launches which function: counts by program and function name, and what they say. Pure.

Learned from launches under marks or NVTX ranges. A function of which 95 % went to one stage, of at least 50,
is an anchor of it; another one is shared. Confidence is the lower bound of Wilson's interval (95 %) of the
share: few launches make it low.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hotstage.probes.maps.inference import FunctionDecision
from hotstage.probes.maps.layout import FunctionKind
from hotstage.stages.stage import Modality, Stage

ANCHOR_SHARE = 0.95
MIN_LAUNCHES = 50
SHARED_SHARE = 0.001
"""A stage that launches less of a function than this does not count as one that launches it."""
FUNCTIONS_LIMIT = 4096
COUNT_LIMIT = 1 << 24
"""Then all counts of a function are halved: what a program does now weighs more than what it did."""
GRAPH_NAME = "(graphs)"
GRAPH_HASH = 1
_Z = 1.96
_STAGES = len(Stage)

Place = tuple[int, int]
"""(stage, modality)"""


@dataclass(slots=True)
class FunctionCounts:
    """Launches of one function by (stage, modality)."""

    name: str
    launches: dict[Place, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.launches.values())

    def by_stage(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for (stage, _), count in self.launches.items():
            found[stage] = found.get(stage, 0) + count
        return found

    def add(self, place: Place, count: int) -> None:
        self.launches[place] = self.launches.get(place, 0) + count
        while self.total > COUNT_LIMIT:
            self.launches = {key: count // 2 for key, count in self.launches.items() if count > 1}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a function says. `share` is that of its first stage, `confidence` its lower bound."""

    name: str
    decision: FunctionDecision
    share: float
    launches: int
    confidence: float


@dataclass(slots=True)
class Program:
    """What was learned of one program. `name` is for people; `moved`: since it was last written."""

    name: str
    functions: OrderedDict[int, FunctionCounts] = field(default_factory=OrderedDict)
    moved: bool = True

    @property
    def total(self) -> int:
        return sum(each.total for each in self.functions.values())


class FingerprintBook:
    """Programs by key; the one that was not met for longest goes first. Not thread-safe."""

    def __init__(self, programs_limit: int) -> None:
        self._limit = programs_limit
        self._programs: OrderedDict[str, Program] = OrderedDict()
        # What each says, until it learns more: a hundred processes may ask for one program every second.
        self._totals: dict[str, int] = {}
        self._verdicts: dict[str, Mapping[int, Verdict]] = {}

    def learn(self, key: str, name: str, name_hash: int, function: str, place: Place, count: int) -> None:
        """`count` more launches of a function by a stage. Made-up stages have no id that lasts: left out."""
        if count <= 0 or not 0 <= place[0] < _STAGES:
            return
        program = self._programs.get(key) or self.add(key, Program(name))
        self._programs.move_to_end(key)
        counts = program.functions.get(name_hash)
        if counts is None:
            if len(program.functions) >= FUNCTIONS_LIMIT:
                program.functions.popitem(last=False)
            counts = program.functions[name_hash] = FunctionCounts(function)
        counts.add(place, count)
        program.moved = True
        self._has_changed(key)

    def add(self, key: str, program: Program) -> Program:
        self._programs[key] = program
        self._has_changed(key)
        while len(self._programs) > self._limit:
            self._has_changed(self._programs.popitem(last=False)[0])
        return program

    def program(self, key: str) -> Program | None:
        return self._programs.get(key)

    def programs(self) -> Iterator[tuple[str, Program]]:
        """From the one that was met longest ago."""
        yield from self._programs.items()

    def total(self, key: str) -> int:
        """Launches that the program was learned from; 0 for one that was not."""
        program = self._programs.get(key)
        if program is None:
            return 0
        if key not in self._totals:
            self._totals[key] = program.total
        return self._totals[key]

    def verdicts(self, key: str) -> Mapping[int, Verdict]:
        """Hash of the name → what the function says; functions that were seen too seldom are not in it."""
        program = self._programs.get(key)
        if program is None:
            return {}
        if key not in self._verdicts:
            found = ((each, verdict_of(counts)) for each, counts in program.functions.items())
            self._verdicts[key] = {name_hash: said for name_hash, said in found if said is not None}
        return self._verdicts[key]

    @property
    def has_moved(self) -> bool:
        return any(program.moved for program in self._programs.values())

    def _has_changed(self, key: str) -> None:
        self._totals.pop(key, None)
        self._verdicts.pop(key, None)


def verdict_of(counts: FunctionCounts) -> Verdict | None:
    """None below MIN_LAUNCHES."""
    total = counts.total
    if total < MIN_LAUNCHES:
        return None
    by_stage = counts.by_stage()
    stage = max(by_stage, key=lambda each: by_stage[each])
    share = by_stage[stage] / total
    if share >= ANCHOR_SHARE:
        decision = FunctionDecision(FunctionKind.ANCHOR, stage, _modality(counts, stage), 1 << stage)
    else:
        mask = sum(1 << each for each, count in by_stage.items() if count >= SHARED_SHARE * total)
        decision = FunctionDecision(FunctionKind.SHARED, stage_mask=mask)
    return Verdict(counts.name, decision, share, total, wilson_lower(share, total))


def confidence_of(verdicts: Iterable[Verdict], stage: int) -> float | None:
    """Of a stage that is known by its anchors: the mean of theirs by launches. None without any."""
    anchors = (each for each in verdicts if each.decision.kind is FunctionKind.ANCHOR)
    own = [each for each in anchors if each.decision.stage == stage]
    weight = sum(each.launches for each in own)
    return sum(each.confidence * each.launches for each in own) / weight if weight else None


def wilson_lower(share: float, count: int) -> float:
    """Lower bound of Wilson's score interval at 95 %: Wilson, J. Am. Stat. Assoc. 22 (1927) 209."""
    z2 = _Z * _Z / count
    return (share + z2 / 2 - _Z * math.sqrt(share * (1 - share) / count + z2 / (4 * count))) / (1 + z2)


def _modality(counts: FunctionCounts, stage: int) -> int:
    """The one with nine tenths of the stage's launches, else mixed; unknown ones do not count."""
    own = {m: count for (s, m), count in counts.launches.items() if s == stage and m != Modality.unknown}
    if not own:
        return int(Modality.unknown)
    first = max(own, key=lambda each: own[each])
    return first if own[first] >= 0.9 * sum(own.values()) else int(Modality.mixed)
