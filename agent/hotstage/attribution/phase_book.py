# SPDX-License-Identifier: Apache-2.0
"""Bursts of all threads over time: read what is new, judge it. One judge asks, from one thread."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hotstage.attribution.phases import NO_BURSTS, PhaseShape, ThreadPhases
from hotstage.probes.maps.bursts import PhaseLimits


class Bursts(Protocol):
    """`BurstMaps`."""

    def since(self, pid: int, tid: int, written: int) -> tuple[NDArray[np.void], int]: ...

    def set_limits(self, pid: int, tid: int, limits: PhaseLimits | None) -> bool: ...


@dataclass(slots=True)
class _Followed:
    steps: int = 0
    written: int = 0
    phases: ThreadPhases = field(default_factory=ThreadPhases)


class PhaseBook:
    """What each thread's bursts say. A thread that ends no step costs nothing, one that does one look-up."""

    def __init__(self) -> None:
        self._followed: dict[int, _Followed] = {}

    def look(self, bursts: Bursts, pid: int, tid: int, steps: int) -> PhaseShape:
        """`steps`: how many the thread has ended so far, as the kernel counts them."""
        followed = self._followed.get(tid)
        if followed is None or steps < followed.steps:  # the tid is another thread now
            if not steps:
                return NO_BURSTS
            followed = self._followed[tid] = _Followed()
        if steps != followed.steps:
            followed.steps = steps
            new, followed.written = bursts.since(pid, tid, followed.written)
            followed.phases.advance(new)
        return followed.phases.shape

    def forget(self, kept: Collection[int]) -> None:
        """All threads but these have ended."""
        for tid in self._followed.keys() - kept:
            del self._followed[tid]
