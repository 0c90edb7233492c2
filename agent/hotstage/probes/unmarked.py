# SPDX-License-Identifier: Apache-2.0
"""What unmarked work is seen by and told to count as: threads, streams, functions, bursts, rules.

It hands over to the maps and judges nothing; `attribution` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.counted import Counted
from hotstage.probes.launch_sources import LaunchSources
from hotstage.probes.maps.bursts import BurstMaps
from hotstage.probes.maps.guarded import GuardedMaps
from hotstage.probes.maps.inference import Function, FunctionDecision, RuleEntry, Stream


class UnmarkedWork:
    """Between the engine's start and close; any thread may call."""

    def __init__(self, maps: GuardedMaps, counted: Counted) -> None:
        self._maps = maps
        self._counted = counted
        self._looked_at: NDArray[np.void] | None = None

    def look_at(self, threads: NDArray[np.void]) -> None:
        """THREAD_DTYPE (T,) as of the fast tick that has just read them; nobody changes them any more."""
        self._looked_at = threads

    def thread_ids(self) -> list[int]:
        """Of every thread seen so far, as of the last fast tick; as of now where there is none."""
        threads = self.threads() if self._looked_at is None else self._looked_at
        ids: list[int] = threads["tid"].tolist()
        return ids

    def threads(self) -> NDArray[np.void]:
        """THREAD_DTYPE (T,), every thread seen so far, as of now."""
        with self._maps.held() as maps:
            return maps.threads()

    def launches_by_source(self) -> Mapping[int, LaunchSources]:
        """pid → its launches by why they count as their stage."""
        return self._counted.launches_by_source()

    def set_stage_rules(self, pid: int, entries: Collection[RuleEntry]) -> int:
        """What unmarked work of the process counts as from now on; how many entries found no room."""
        return self._maps.free.inference.set_rules(pid, entries)

    def functions(self) -> list[Function]:
        """Functions that processes looked up by name while they were watched."""
        return self._maps.free.inference.functions()

    def function_counts(self) -> list[tuple[int, int, int, int, int]]:
        """(pid, handle, stage, modality, launches) of marked launches while learning."""
        return self._maps.free.inference.counts()

    def decide_functions(self, pid: int, decisions: Mapping[int, FunctionDecision]) -> int:
        """What unmarked launches of these handles say of their thread; how many handles are known."""
        return self._maps.free.inference.decide(pid, decisions)

    def learn_functions(self, is_learning: bool) -> None:
        """Whether marked launches are counted by function from now on."""
        self._maps.free.learn(is_learning)

    def streams(self) -> list[Stream]:
        """Streams that were made while watched, by process and in the order of their making."""
        return self._maps.free.inference.streams()

    @property
    def bursts(self) -> BurstMaps:
        """Bursts of unmarked launches by thread, and which of them are prefill and decode."""
        return self._maps.free.bursts
