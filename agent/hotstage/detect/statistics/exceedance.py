# SPDX-License-Identifier: Apache-2.0
"""k of the last n: too many samples above a level for chance, by the binomial tail of their usual share.

Sees what a cumulative sum forgives: a fault that comes and goes between good samples.
"""

from __future__ import annotations

import math
from functools import lru_cache

_SPANS = (6, 8, 12, 16, 24, 32)
"""Look-backs in samples, short ones first: a hard fault is seen in the shortest."""

_CHANCE = 3e-7
"""False alarms per sample that are accepted for each look-back, if samples were independent."""

_BITS = max(_SPANS)


@lru_cache(maxsize=128)
def needed(usual_percent: int) -> tuple[int, ...]:
    """For each look-back: how many must exceed when `usual_percent` of all do. More than it holds = never."""
    usual = usual_percent / 100
    return tuple(_needed(span, usual) for span in _SPANS)


def _needed(span: int, usual: float) -> int:
    tail = 0.0
    for count in range(span, -1, -1):
        tail += math.comb(span, count) * usual**count * (1 - usual) ** (span - count)
        if tail > _CHANCE:
            return count + 1
    return 0


class Exceedances:
    """The last 32 samples as bits, newest lowest."""

    def __init__(self) -> None:
        self._bits = 0

    def add(self, exceeds: bool) -> None:
        self._bits = (self._bits << 1 | exceeds) & ((1 << _BITS) - 1)

    def is_over(self, usual_ratio: float) -> bool:
        """Whether any look-back holds too many; `usual_ratio` is rounded up to whole percent, at least 2."""
        if self._bits == 0:
            return False
        limits = needed(min(max(math.ceil(usual_ratio * 100), 2), 50))
        return any(
            (self._bits & ((1 << span) - 1)).bit_count() >= limit
            for span, limit in zip(_SPANS, limits, strict=True)
        )

    def count(self, span: int) -> int:
        """How many of the last `span` samples exceeded."""
        return (self._bits & ((1 << span) - 1)).bit_count()

    def reset(self) -> None:
        self._bits = 0
