# SPDX-License-Identifier: Apache-2.0
"""The shape of an unmarked thread's steps: does it decode and prefill? Pure arithmetic on counters.

A step is what a thread launches from one wait to the next. Decode: one graph, few launches beside it, little
copied to the host, again and again. Prefill: no graph, a long burst, after a copy to the device. That needs
graphs: without them (eager mode) a step of decode launches as many kernels as one of prefill, and nothing is
claimed. Other graphs (a captured encoder returns more than tokens) are not of that shape.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW_NS = 10_000_000_000
LOOK_NS = 900_000_000
"""How far apart looks are kept: a process with many new threads is looked at more often."""
MIN_GRAPH_STEPS = 20
MIN_SHARE = 0.9
DECODE_CONFIDENCE = 0.6
PREFILL_CONFIDENCE = 0.5
ENGINE_BONUS = 0.15
"""What an engine adds that says itself that it decodes: it names no thread, so it decides nothing."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """Steps of the last ten seconds. `graph`: as decode makes them; `burst`: as prefill does."""

    steps: int
    graph: int
    burst: int
    seconds: float

    @property
    def is_language_model(self) -> bool:
        return self.graph >= MIN_GRAPH_STEPS and self.graph + self.burst >= MIN_SHARE * self.steps

    @property
    def why(self) -> str:
        """In words, what was seen."""
        rate = self.graph / self.seconds if self.seconds else 0.0
        return (
            f"{self.graph} of {self.steps} steps in {self.seconds:.0f} s are one graph, few launches and "
            f"little to the host ({rate:.0f}/s), {self.burst} are long bursts after input"
        )


@dataclass(slots=True)
class _Look:
    at_ns: int
    steps: int
    graph: int
    burst: int


class ThreadSteps:
    """One thread's counters over time; `advance` with what the kernel has counted."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()
        self.is_decided = False
        """Once clear it stays, until steps of another shape are the most: a pause changes nothing."""

    def advance(self, at_ns: int, steps: int, graph: int, burst: int) -> StepShape:
        if self._looks and steps < self._looks[-1].steps:  # the tid is another thread now
            self._looks.clear()
            self.is_decided = False
        if not steps:
            self._looks.clear()  # of the many threads that never end a step one look is enough
        if len(self._looks) > 1 and at_ns - self._looks[-2].at_ns < LOOK_NS:
            self._looks.pop()
        self._looks.append(_Look(at_ns, steps, graph, burst))
        while len(self._looks) > 1 and at_ns - self._looks[0].at_ns > WINDOW_NS:
            self._looks.popleft()
        first = self._looks[0]
        shape = StepShape(
            steps - first.steps, graph - first.graph, burst - first.burst, (at_ns - first.at_ns) / 1e9
        )
        if shape.is_language_model:
            self.is_decided = True
        elif shape.steps >= MIN_GRAPH_STEPS:
            self.is_decided = False
        return shape
