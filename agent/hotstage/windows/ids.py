# SPDX-License-Identifier: Apache-2.0
"""Window ids: 26 characters that sort by time (ULID: 48 bits of wall-clock ms, 80 of chance)."""

from __future__ import annotations

import os
from collections.abc import Callable

from hotstage.clock import Clock

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U


class WindowIds:
    """Callable: opening time (CLOCK_MONOTONIC ns) → id, greater than every id before it."""

    def __init__(self, clock: Clock, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._last = 0

    def __call__(self, opened_ns: int) -> str:
        milliseconds = self._clock.wall_ns_of(opened_ns) // 1_000_000
        number = milliseconds << 80 | int.from_bytes(self._entropy(10), "big")
        self._last = max(number, self._last + 1)
        return "".join(_ALPHABET[self._last >> shift & 31] for shift in range(125, -1, -5))
