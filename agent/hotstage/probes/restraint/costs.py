# SPDX-License-Identifier: Apache-2.0
"""What a probed call costs its process on this host: measured when the programs are loaded, before anything
else is attached, on functions that do nothing. Nothing is assumed: what could not be measured is None.

Least of several slices, all variants in turn, less a call that is not probed; some 20 ms in all.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from hotstage.clock import Clock, rfc3339
from hotstage.errors import HotstageError
from hotstage.probes.loader.base import AttachPoint, Link, Loader, PointKind
from hotstage.probes.loader.links import detach
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.levels import Level, LevelMaps
from hotstage.probes.restraint.twins import Twins

log = logging.getLogger(__name__)

_LAUNCH, _WAIT, _MARK = 1, 64, 480  # cuLaunchKernel, cuStreamSynchronize, hotstage_mark_stage_begin
_PUSH, _POP = 491, 492
_ROUNDS, _CALLS, _STEPPED_CALLS = 25, 50, 10
_NO_STAGE_WORD = 255 | 5 << 8


@dataclass(frozen=True, slots=True)
class Costs:
    """ns that a call's probes add, by class; a class is None where it was not measured.

    `timed` is entry and return with all that level `full` records, `timed_tails` and `timed_counts` the same
    call at these levels; `step` what an instruction that must be stepped adds to each; `nvtx` half of a push
    and its pop; `page_fault` a fault of a followed thread, `other_page_fault` of any other one. `basis` is a
    sentence.
    """

    basis: str
    launch: float | None = None
    timed: float | None = None
    timed_tails: float | None = None
    timed_counts: float | None = None
    mark: float | None = None
    nvtx: float | None = None
    step: float | None = None
    page_fault: float | None = None
    other_page_fault: float | None = None

    @property
    def is_known(self) -> bool:
        return None not in (self.launch, self.timed, self.timed_tails, self.timed_counts)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def calibrate(
    loader: Loader, maps: KernelMaps, levels: LevelMaps, clock: Clock, *, with_nvtx: bool = False
) -> Costs:
    """Measure. Leaves nothing in the maps; the probes of the functions are let go beside the caller."""
    try:
        twins = Twins(plain=6, stepped=1)
    except (OSError, KeyError) as error:
        return Costs(f"not calibrated: no code to measure with ({error})")
    own = os.getpid()
    try:
        untraced, *probed = twins.plain
        launch, timed, mark, push, pop = probed
        points = [
            _point(_LAUNCH, launch, PointKind.LAUNCH),
            _point(_WAIT, timed, PointKind.TIMED),
            _point(_MARK, mark, PointKind.STAGE_BEGIN),
            _point(_LAUNCH, twins.stepped[0], PointKind.LAUNCH),
        ]
        if with_nvtx:
            points += [_point(_PUSH, push, PointKind.NVTX_PUSH), _point(_POP, pop, PointKind.NVTX_POP)]
        attachment = loader.attach(twins.library, points)
    except (HotstageError, OSError) as error:
        twins.close()
        return Costs(f"not calibrated: {error}")
    try:
        turns = [
            *(_Turn(place) for place in (untraced, launch, timed, mark)),
            _Turn(twins.stepped[0], calls=_STEPPED_CALLS),
            _Turn(timed, Level.tails_only),
            _Turn(timed, Level.counts_only),
            *([_Turn(push, word=None), _Turn(pop, word=None)] if with_nvtx else ()),
        ]
        least = _least(twins, turns, lambda level: levels.set(own, level))
        bare, launch_ns, timed_ns, mark_ns, stepped_ns, tails_ns, counts_ns, *ranges_ns = least
        nvtx_ns = sum(ranges_ns) / 2 - bare if ranges_ns else None
    finally:
        levels.forget([own])
        maps.forget_processes([own])
        leaving = threading.Thread(
            target=_leave, args=(attachment.links, twins), name="hotstage-twins", daemon=True
        )
        leaving.start()
    costs = Costs(
        basis=f"calibrated on this host at {rfc3339(clock.wall_ns())}",
        launch=launch_ns - bare,
        timed=timed_ns - bare,
        timed_tails=tails_ns - bare,
        timed_counts=counts_ns - bare,
        mark=mark_ns - bare,
        nvtx=nvtx_ns,
        step=max(0.0, stepped_ns - launch_ns),
    )
    told = {name: round(value) for name, value in asdict(costs).items() if isinstance(value, float)}
    log.info("probes calibrated, ns a call", extra=told)
    return costs


def _leave(links: Sequence[Link], twins: Twins) -> None:
    detach(links)
    twins.close()


@dataclass(frozen=True, slots=True)
class _Turn:
    """One slice: calls of a function while its process is at a level; `word` None: with a string."""

    place: int
    level: Level = Level.full
    word: int | None = _NO_STAGE_WORD
    calls: int = _CALLS


def _least(twins: Twins, turns: Sequence[_Turn], go_to: Callable[[Level], None]) -> list[float]:
    """ns a call of each turn, least of the rounds; the first one warms up and is not counted.

    All in every round, so that whoever else runs for a while slows all of them or none.
    """
    least = [float("inf")] * len(turns)
    level = Level.full
    for number in range(_ROUNDS + 1):
        for at, turn in enumerate(turns):
            if turn.level is not level:
                level = turn.level
                go_to(level)
                twins.slice_ns(turn.place, 1, turn.word)  # looks the level up
            taken = twins.slice_ns(turn.place, turn.calls, turn.word) / turn.calls
            if number:
                least[at] = min(least[at], taken)
    return least


def _point(call_id: int, offset: int, kind: PointKind) -> AttachPoint:
    return AttachPoint(call_id, kind, offset, kind, True, offset)
