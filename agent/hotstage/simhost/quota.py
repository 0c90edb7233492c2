# SPDX-License-Identifier: Apache-2.0
"""What each simulated server may use of CPU and memory, as a container would say it, by a cgroup of its own.

A quota that bites would be a fault that nobody injected: one that does, or is about to, is raised. It knows
nothing of requests or faults.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hotstage.simhost.cgroup import Group, find_place

NAME = "hotstage-sim"
_ROOM_RATIO = 0.75
_REMOVE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Quota:
    """What one server may use."""

    cores: float
    memory_bytes: int

    def times(self, calls_scale: float) -> Quota:
        """For servers that make so many times the calls; never less than as it is."""
        return replace(self, cores=self.cores * max(1.0, calls_scale))


QUOTAS = (Quota(0.15, 64 << 20), Quota(0.25, 96 << 20))
"""By instance. A server was measured at 0.02 cores and 26 MiB, at twice the load at 0.04, probes attached."""


@dataclass(slots=True)
class _Held:
    """One server in its group."""

    pid: int
    group: Group
    quota: Quota
    times_throttled: int = 0
    is_starved: bool = False


class Quotas:
    """The groups of one host's servers."""

    def __init__(self, cgroup_root: Path = Path("/sys/fs/cgroup"), proc_root: Path = Path("/proc")) -> None:
        self._cgroup_root = cgroup_root
        self._proc_root = proc_root
        self._held: dict[str, _Held] = {}
        self._made: list[Group] = []

    def impose(self, instance: str, pid: int, quota: Quota) -> None:
        """Move the server into a group of its own. Raises OSError, and then it has no limit from here."""
        place = find_place(self._cgroup_root, self._proc_root)
        self._sweep(place)
        group = _below(place, f"{NAME}-{os.getpid()}-{instance}")
        self._made.append(group)
        try:
            group.make()
            group.limit(quota.cores, quota.memory_bytes)
            group.take(pid)
        except OSError:
            with suppress(OSError):  # it may sit in one of two already
                group.limit(None, None)
            raise
        self._held[instance] = _Held(pid, group, quota)

    def relieve(self) -> dict[str, Quota]:
        """Double what has stopped a server or is nearly full; the quotas that were raised, by instance."""
        raised = {}
        for instance, held in self._held.items():
            if held.is_starved:
                continue
            quota = held.quota
            throttled = held.group.times_throttled()
            if throttled > held.times_throttled:
                held.times_throttled = throttled
                quota = replace(quota, cores=2 * quota.cores)
            if self._rss_bytes(held.pid) > _ROOM_RATIO * quota.memory_bytes:
                quota = replace(quota, memory_bytes=2 * quota.memory_bytes)
            if quota != held.quota:
                held.quota = raised[instance] = quota
                with suppress(OSError):  # what holds it then is the machine's own limit
                    held.group.limit(quota.cores, quota.memory_bytes)
        return raised

    def starve(self, instance: str, factor: float) -> None:
        """So many times less CPU than its quota, and no relief. Raises OSError; KeyError: it has no group."""
        held = self._held[instance]
        held.group.limit(held.quota.cores / factor, held.quota.memory_bytes)
        held.is_starved = True

    def feed(self, instance: str) -> None:
        """Its quota as it was. Raises OSError; KeyError: it has no group."""
        held = self._held[instance]
        held.group.limit(held.quota.cores, held.quota.memory_bytes)
        held.times_throttled, held.is_starved = held.group.times_throttled(), False

    def lift(self) -> None:
        """No limits from now on: to report on a long run takes more than to serve did."""
        for held in self._held.values():
            with suppress(OSError):
                held.group.limit(None, None)

    def close(self) -> None:
        """Remove the groups; call it when the servers have ended."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        while not all([group.remove() for group in self._made]) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _sweep(self, place: Group) -> None:
        """Remove what killed hosts have left; a group in use refuses."""
        for parent in place.folders:
            for folder in parent.glob(f"{NAME}-*-*"):
                pid = folder.name.removeprefix(f"{NAME}-").partition("-")[0]
                if pid.isdecimal() and not (self._proc_root / pid).exists():
                    with suppress(OSError):
                        folder.rmdir()

    def _rss_bytes(self, pid: int) -> int:
        try:
            pages = int((self._proc_root / str(pid) / "statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")


def _below(place: Group, name: str) -> Group:
    return replace(place, cpu=place.cpu / name, memory=place.memory / name)
