# SPDX-License-Identifier: Apache-2.0
"""Memory that a burst left with the allocator goes back to the kernel.

glibc keeps what is freed in the middle of its heap: after a burst of threads the agent would stay as large as
it was for as long as it runs. Trimming takes some tenths of a millisecond, and is tried only where the agent
has grown since the last time. Other C libraries have no such call, and then nothing happens.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable
from pathlib import Path

PERIOD_NS = 60_000_000_000
WORTH_BYTES = 8 << 20
"""By so much it must have grown."""

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = resource.getpagesize()


class Trimming:
    """`look` once a second, on the tick's thread."""

    def __init__(self) -> None:
        self._trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._due_ns = 0
        self._least_bytes: int | None = None
        """Resident as of the last trimming, or the first look."""

    def look(self, now_ns: int) -> None:
        """Once a minute. `now_ns` is CLOCK_MONOTONIC."""
        if self._trim is None or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + PERIOD_NS
        now_bytes = resident_bytes()
        if self._least_bytes is None:
            self._least_bytes = now_bytes
        elif now_bytes - self._least_bytes >= WORTH_BYTES:
            self._trim(0)
            self._least_bytes = resident_bytes()


def resident_bytes() -> int:
    """Of this process, shared pages and the mappings of BPF maps included."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
