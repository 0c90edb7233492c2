# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU's free memory cannot serve one large allocation, and on what that is based (RULES a).

The seed's ratio is (total_free - largest_contiguous_free) ÷ total_free. Neither NVML nor CUDA shows the
largest block, so each figure has a basis, the best that there is: torch > pool > ledger > inferred > unknown.
What is used and free alone says nothing of it. No ratio while less than 2 % of the device is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from hotstage.probes.memory_sample import Basis, Estimate

LEAST_FREE = 0.02
"""Of a device: below, every allocation fails, and no ratio means anything."""
FALSE_OOM_ABOVE = 0.4
"""Free memory that cannot serve a large tensor: an allocation may fail with enough free (RULES a)."""
LEAST_KNOWN = 0.5
"""Of what is used, the ledger must know this much to speak for the device."""
REMEMBERED_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What NVML says of a GPU, bytes."""

    total: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.total - self.used)

    @property
    def is_nearly_full(self) -> bool:
        return self.free < LEAST_FREE * self.total


def of_ledger(live: int, pages: int, known: int, device: DeviceMemory) -> Estimate | None:
    """From pages: `live` bytes of pointers lie in `pages` bytes of pages of 2 MiB, whose rest is free and
    serves small allocations only, while any free pages make one range. So total_free = rest + free of the
    device, and the largest free block is the latter. None where the ledger knows less than half of what is
    used (`known` bytes, of all kinds).
    """
    rest = pages - live
    if not live or known < LEAST_KNOWN * device.used or rest < 0:
        return None
    free = rest + device.free
    return Estimate(Basis.LEDGER, rest / free if free else None, free, device.free)


@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """Out of memory, while `free` was free."""

    at_ns: int
    bytes: int
    free: int


class FailedAllocations:
    """Allocations of one GPU that failed though there was room enough, over the last minute."""

    def __init__(self) -> None:
        self._recent: deque[FailedAllocation] = deque(maxlen=256)

    def add(self, at_ns: int, asked_bytes: int, device: DeviceMemory) -> None:
        """One that failed; those that asked for more than was free say nothing."""
        if asked_bytes and device.free >= asked_bytes and not device.is_nearly_full:
            self._recent.append(FailedAllocation(at_ns, asked_bytes, device.free))

    def count(self, now_ns: int) -> int:
        """How many there were in the last minute."""
        while self._recent and now_ns - self._recent[0].at_ns > REMEMBERED_NS:
            self._recent.popleft()
        return len(self._recent)

    def inferred(self, now_ns: int, device: DeviceMemory | None) -> Estimate | None:
        """No free block was as large as the smallest that failed: ratio ≥ 1 - asked ÷ free, a lower bound.
        What is free is that of `device` now, where it is known.
        """
        if not self.count(now_ns):
            return None
        worst = max(self._recent, key=lambda each: 1 - each.bytes / each.free)
        return Estimate(
            Basis.INFERRED,
            1 - worst.bytes / worst.free,
            worst.free if device is None else device.free,
            worst.bytes,
            f"an allocation of {worst.bytes} bytes failed while {worst.free} were free",
        )


def best(found: Iterable[Estimate | None], device: DeviceMemory | None) -> Estimate:
    """The figure of the best basis; of one basis that with the most free memory behind it."""
    known = [each for each in found if each is not None]
    if not known:
        return Estimate(Basis.UNKNOWN, why="nothing shows the largest free block")
    chosen = max(known, key=lambda each: (each.basis, each.free_bytes or 0))
    if device is not None and (chosen.free_bytes or 0) < LEAST_FREE * device.total:
        return Estimate(chosen.basis, why="less than 2 % of the device is free")
    return chosen


def is_false_oom_risk(found: Estimate) -> bool | None:
    """Whether so much of what is free is cut up that an allocation may fail for no lack of memory; None where
    it is not known. Slack of a pool says nothing of how it is cut; what is inferred is a lower bound.
    """
    if found.ratio is None or found.basis is Basis.POOL:
        return None
    if found.basis is Basis.INFERRED and found.ratio <= FALSE_OOM_ABOVE:
        return None
    return found.ratio > FALSE_OOM_ABOVE
