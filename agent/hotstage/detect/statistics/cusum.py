# SPDX-License-Identifier: Apache-2.0
"""A one-sided cumulative sum with capped steps: grows while samples lie above `drift`, falls while below.

The cap makes a single wild sample worth no more than a clear one, so heavy tails do not fire it; the sum is
capped too, so that an alarm ends soon after its cause.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_MAX = 1.2
STEP_MIN = -0.6
_HEADROOM = 1.5


@dataclass(slots=True)
class Cusum:
    """`value` ≥ `limit` means changed. `step` says what a sample is worth; it can be paid in parts."""

    limit: float
    value: float = 0.0

    @staticmethod
    def step(excess: float, drift: float) -> float:
        return min(max(excess - drift, STEP_MIN), STEP_MAX)

    def add(self, step: float) -> None:
        self.value = min(max(self.value + step, 0.0), self.limit + _HEADROOM)

    @property
    def is_over(self) -> bool:
        return self.value >= self.limit

    def reset(self) -> None:
        self.value = 0.0
