# SPDX-License-Identifier: Apache-2.0
"""What a probed call costs its process on this host: measured when the programs are loaded, before anything
else is attached, on functions that do nothing. Nothing is assumed: what could not be measured is None.

Least of several slices, all variants in turn, less a call that is not probed; some 20 ms in all.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
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
_ROUNDS, _CALLS, _STEPPED_CALLS = 10, 100, 20
_NO_STAGE_WORD = 255 | 5 << 8


@dataclass(frozen=True, slots=True)
class Costs:
    """ns that a call's probes add, by class; a class is None where it was not measured.

    `timed` is entry and return with all that level `full` records, `timed_tails` and `timed_counts` the same
    call at these levels; `step` what an instruction that must be stepped adds to each; `nvtx` half of a push
    and its pop. `basis` is a sentence.
    """

    basis: str
    launch: float | None = None
    timed: float | None = None
    timed_tails: float | None = None
    timed_counts: float | None = None
    mark: float | None = None
    nvtx: float | None = None
    step: float | None = None

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
        places = [untraced, launch, timed, mark, twins.stepped[0]]
        bare, launch_ns, timed_ns, mark_ns, stepped_ns = _least(twins, places)
        levels.set(own, Level.tails_only)
        (tails_ns,) = _least(twins, [timed])
        levels.set(own, Level.counts_only)
        (counts_ns,) = _least(twins, [timed])
        nvtx_ns = sum(_least(twins, [push, pop], word=None)) / 2 - bare if with_nvtx else None
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


def _least(twins: Twins, places: Sequence[int], word: int | None = _NO_STAGE_WORD) -> list[float]:
    """ns a call at each place, least of the rounds; a first round warms up and is not counted."""
    least = [float("inf")] * len(places)
    for turn in range(_ROUNDS + 1):
        for at, place in enumerate(places):
            calls = _STEPPED_CALLS if place in twins.stepped else _CALLS
            taken = twins.slice_ns(place, calls, word) / calls
            if turn:
                least[at] = min(least[at], taken)
    return least


def _point(call_id: int, offset: int, kind: PointKind) -> AttachPoint:
    return AttachPoint(call_id, kind, offset, kind, True, offset)
