# SPDX-License-Identifier: Apache-2.0
"""The one place that reads a clock. It never sleeps.

Inside, every time is CLOCK_MONOTONIC in ns (what `bpf_ktime_get_ns` reads); people and files get wall time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OFFSET_TOLERANCE_NS = 1_000_000


class Clock(Protocol):
    """What the rooms are given, so that a test can hand them a clock of its own."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...

    def wall_ns_of(self, monotonic_ns: int) -> int:
        """The wall time of a monotonic one, by the offset as it is now (a stepped wall clock is followed)."""
        ...


class SystemClock:
    """The machine's clocks.

    The offset between them is kept while it is right to a millisecond: one moment always gets one date.
    """

    def __init__(self) -> None:
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    def wall_ns_of(self, monotonic_ns: int) -> int:
        offset_ns = time.time_ns() - time.monotonic_ns()
        if abs(offset_ns - self._wall_offset_ns) > _OFFSET_TOLERANCE_NS:
            self._wall_offset_ns = offset_ns
        return self._wall_offset_ns + monotonic_ns


def boot_id() -> str:
    """This boot's id: a stored monotonic time means nothing after a reboot."""
    return _BOOT_ID.read_text().strip()


def rfc3339(wall_ns: int) -> str:
    """UTC with milliseconds, e.g. `2026-11-29T18:04:15.123Z`."""
    moment = datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ns // 1_000_000 % 1000:03d}Z"
