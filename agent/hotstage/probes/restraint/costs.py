# SPDX-License-Identifier: Apache-2.0
"""What a probed call costs its process on this host: measured when the programs are loaded, before anything
else is attached, on functions that do nothing. Nothing is assumed: what could not be measured is None.

Least of several slices, all variants in turn, less a call that is not probed; some 30 ms in all.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hotstage.clock import Clock, rfc3339
from hotstage.errors import HotstageError
from hotstage.probes.loader.base import AttachPoint, Link, Loader, PointKind
from hotstage.probes.loader.links import detach
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.levels import Level, LevelMaps
from hotstage.probes.maps.names import LAUNCH_GAP, STACK_FRAMES
from hotstage.probes.restraint.twins import Twins

log = logging.getLogger(__name__)

_LAUNCH, _WAIT, _MARK = 1, 64, 480  # cuLaunchKernel, cuStreamSynchronize, hotstage_mark_stage_begin
_PUSH, _POP = 491, 492
_ROUNDS, _CALLS, _STEPPED_CALLS, _TOLD_CALLS = 25, 50, 10, 20
_NO_STAGE_WORD = 255 | 5 << 8
_TIMED = (Level.full, Level.tails_only, Level.counts_only)
_NO_ERROR = 0
"""The functions return their argument: calls that are timed and told succeed, as most do."""


@dataclass(frozen=True, slots=True)
class Costs:
    """ns that a call's probes add, by class; a class is None where it was not measured.

    `timed` is entry and return with all that level `full` records, `timed_tails` and `timed_counts` the same
    call at these levels; `step` what an instruction that must be stepped adds to each; `nvtx` half of a push
    and its pop; `page_fault` a fault of a followed thread, `other_page_fault` of any other one. `sample` is
    what a launch costs more whose kernel is looked at, and `launch` has its share. `told` is what a slow or
    failing call costs more with a stack as deep as is taken at most, `told_bare` without one. `basis` is a
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
    sample: float | None = None
    told: float | None = None
    told_bare: float | None = None

    @property
    def is_known(self) -> bool:
        return None not in (self.launch, self.timed, self.timed_tails, self.timed_counts)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def calibrate(
    loader: Loader,
    maps: KernelMaps,
    levels: LevelMaps,
    clock: Clock,
    *,
    launch_gap: int = LAUNCH_GAP,
    with_nvtx: bool = False,
) -> Costs:
    """Measure, for kernels of one launch in `launch_gap` (0: of none). Leaves nothing in maps and rings; the
    probes of the functions are let go beside the caller.
    """
    try:
        twins = Twins(plain=6, stepped=1)
    except (OSError, KeyError) as error:
        return Costs(f"not calibrated: no code to measure with ({error})")
    try:
        _, launch, timed, mark, push, pop = twins.plain
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
    process = _Process(twins, maps, levels)
    try:
        measured = _measure(process, twins, launch_gap, with_nvtx)
    finally:
        process.close()
        leaving = threading.Thread(
            target=_leave, args=(attachment.links, twins), name="hotstage-twins", daemon=True
        )
        leaving.start()
    told = {name: round(value) for name, value in measured.items() if value is not None}
    log.info("probes calibrated, ns a call", extra=told)
    return Costs(f"calibrated on this host at {rfc3339(clock.wall_ns())}", **measured)


def _measure(process: _Process, twins: Twins, launch_gap: int, with_nvtx: bool) -> dict[str, float | None]:
    """Fields of `Costs`."""
    untraced, launch, timed, mark, push, pop = twins.plain
    turns = [
        *(_Turn(place) for place in (untraced, launch, mark)),
        _Turn(twins.stepped[0], calls=_STEPPED_CALLS),
        *(_Turn(timed, level, word=_NO_ERROR) for level in _TIMED),
        _Turn(launch, launch_gap=1),
        *([_Turn(push, word=None), _Turn(pop, word=None)] if with_nvtx else ()),
    ]
    bare, launch_ns, mark_ns, stepped_ns, timed_ns, tails_ns, counts_ns, sampled_ns, *ranges_ns = (
        process.least(turns)
    )
    stack_ns, told_ns = process.told(timed)
    sample_ns = max(0.0, sampled_ns - launch_ns)
    return {
        "launch": launch_ns - bare + (sample_ns / launch_gap if launch_gap else 0.0),
        "timed": timed_ns - bare,
        "timed_tails": tails_ns - bare,
        "timed_counts": counts_ns - bare,
        "mark": mark_ns - bare,
        "nvtx": sum(ranges_ns) / 2 - bare if ranges_ns else None,
        "step": max(0.0, stepped_ns - launch_ns),
        "sample": sample_ns,
        "told": None if stack_ns is None else stack_ns - timed_ns,
        "told_bare": None if told_ns is None else told_ns - timed_ns,
    }


def _leave(links: Sequence[Link], twins: Twins) -> None:
    detach(links)
    twins.close()


@dataclass(frozen=True, slots=True)
class _Turn:
    """One slice: calls of a function while its process is at a level, with so many frames around them and the
    kernels of one launch in `launch_gap` looked at; `word` None: with a string.
    """

    place: int
    level: Level = Level.full
    word: int | None = _NO_STAGE_WORD
    calls: int = _CALLS
    depth: int = 0
    launch_gap: int = 0


class _Process:
    """This one, which calls the functions and is what a turn asks it to be. `close` leaves nothing of it."""

    def __init__(self, twins: Twins, maps: KernelMaps, levels: LevelMaps) -> None:
        self._twins, self._maps, self._levels = twins, maps, levels
        self._pid, self._tid = os.getpid(), threading.get_native_id()
        self._now: tuple[Level, int] | None = None
        self._settings = maps.names.launch_gap, maps.names.takes_stacks

    def least(self, turns: Sequence[_Turn]) -> list[float]:
        """ns a call of each turn, least of the rounds; the first one warms up and is not counted.

        All in every round, so that whoever else runs for a while slows all of them or none.
        """
        least = [float("inf")] * len(turns)
        for number in range(_ROUNDS + 1):
            for at, turn in enumerate(turns):
                self._become(turn)
                taken = self._twins.slice_ns(turn.place, turn.calls, turn.word, turn.depth) / turn.calls
                if number:
                    least[at] = min(least[at], taken)
        return least

    def told(self, timed: int) -> tuple[float | None, float | None]:
        """ns a call that is told as slow, with its stack and without; None for what the rings do not show to
        have been told.
        """
        limits = self._maps.limits()
        turns = [
            _Turn(timed, level, word=_NO_ERROR, calls=_TOLD_CALLS, depth=STACK_FRAMES)
            for level in (Level.full, Level.no_stacks)
        ]
        self._maps.set_limits(slow_call_ns=1, event_gap_ns=0)
        try:
            with_stack, bare = self.least(turns)
        finally:
            self._maps.set_limits(**limits)
            stacks, told = self._maps.names.drain_stacks(), self._maps.read_fast(0).events
        made = _ROUNDS * _TOLD_CALLS
        is_walked = (stacks["tgid"] == self._pid) & (stacks["frame_count"] > 0)
        return (
            with_stack if np.count_nonzero(is_walked) >= made else None,
            bare if np.count_nonzero(told["tgid"] == self._pid) >= 2 * made else None,
        )

    def close(self) -> None:
        gap, takes_stacks = self._settings
        self._maps.names.prepare(launch_gap=gap, takes_stacks=takes_stacks)
        self._levels.forget([self._pid])
        self._maps.forget_processes([self._pid])
        self._maps.names.drain_stacks()
        self._maps.read_fast(0)

    def _become(self, turn: _Turn) -> None:
        if self._now == (turn.level, turn.launch_gap):
            return
        self._now = turn.level, turn.launch_gap
        self._levels.set(self._pid, turn.level)
        self._maps.names.prepare(launch_gap=turn.launch_gap, takes_stacks=True)
        # A thread of whose launches none is looked at does not ask again
        self._maps.forget_threads([self._tid])
        self._twins.slice_ns(turn.place, 1, turn.word)  # looks the level up


def _point(call_id: int, offset: int, kind: PointKind) -> AttachPoint:
    return AttachPoint(call_id, kind, offset, kind, True, offset)
