# SPDX-License-Identifier: Apache-2.0
"""Pressure on the host and on the cgroups of watched processes, looked at beside the tick, which never waits.

cgroup files can block (a busy controller, a hung mount): a thread of its own reads them, the tick takes what
it found last, and what is too old is unknown.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from hotstage.clock import Clock
from hotstage.host.cgroups import CgroupCounters, Places, StallCounter, places_of, read_cgroup, read_stalls
from hotstage.host.samples import CgroupLoad, PressureSample, Stall

log = logging.getLogger(__name__)

CGROUPS_LIMIT = 128
PROCESSES_LIMIT = 1024
STALE_NS = 3_000_000_000
_CLOSE_SECONDS = 0.5


class PressureReader:
    """`look` once a second, by whoever may wait; the first one knows no ratios over time. Not thread-safe."""

    def __init__(
        self, clock: Clock, proc_root: Path = Path("/proc"), cgroup_root: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._clock = clock
        self._proc = proc_root
        self._cgroups = cgroup_root
        self._host: tuple[int, Mapping[str, StallCounter]] | None = None
        self._before: dict[str, tuple[int, CgroupCounters]] = {}

    def look(self, pids: Collection[int]) -> PressureSample:
        """The host, and the cgroups of these processes, of 1,024 of them at most."""
        host = self._read_host()
        places: dict[str, Places] = {}
        cgroup_of: dict[int, str] = {}
        for pid in sorted(pids)[:PROCESSES_LIMIT]:
            found = places_of(pid, self._proc, self._cgroups)
            if found is not None:
                cgroup_of[pid] = _name_of(found)
                places[cgroup_of[pid]] = found
        chosen = dict(list(places.items())[:CGROUPS_LIMIT])
        loads = {name: self._read(name, each) for name, each in chosen.items()}
        self._before = {name: seen for name, seen in self._before.items() if name in chosen}
        return PressureSample(
            at_ns=self._clock.monotonic_ns(),
            host=host,
            cgroups=loads,
            cgroup_of={pid: name for pid, name in cgroup_of.items() if name in loads},
            left_out=len(places) - len(chosen),
        )

    def _read_host(self) -> dict[str, Stall]:
        now = (self._clock.monotonic_ns(), read_stalls(self._proc / "pressure", "{}"))
        before, self._host = self._host, now
        return _stalls(now, before)

    def _read(self, name: str, places: Places) -> CgroupLoad:
        at_ns, counters = self._clock.monotonic_ns(), read_cgroup(places)
        before_ns, before = self._before.get(name, (at_ns, None))
        self._before[name] = at_ns, counters
        seconds = (at_ns - before_ns) / 1e9
        throttled_ratio = throttled_cpus = math.nan
        if before is not None and seconds > 0 and counters.periods >= before.periods:
            periods = counters.periods - before.periods
            throttled = counters.throttled_periods - before.throttled_periods
            throttled_ratio = throttled / periods if periods else 0.0
            throttled_cpus = (counters.throttled_seconds - before.throttled_seconds) / seconds
        return CgroupLoad(
            throttled_ratio=throttled_ratio,
            throttled_cpus=throttled_cpus,
            memory_bytes=counters.memory_bytes,
            memory_high_bytes=counters.memory_high_bytes,
            memory_max_bytes=counters.memory_max_bytes,
            events=counters.events,
            stalls=_stalls((at_ns, counters.stalls), (before_ns, before.stalls) if before else None),
        )


class PressureWatch:
    """`latest` on the tick; the reader's thread ends with `close`, unless the host's files hold it."""

    def __init__(self, reader: PressureReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._asked = threading.Event()
        self._is_closed = False
        self._pids: tuple[int, ...] = ()
        self._sample: PressureSample | None = None
        self._thread = threading.Thread(target=self._read, name="hotstage-pressure", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def latest(self, pids: Collection[int]) -> PressureSample | None:
        """What was found last, None where that is older than three seconds; and ask for these processes."""
        self._pids = tuple(pids)
        self._asked.set()
        sample = self._sample
        if sample is None or self._clock.monotonic_ns() - sample.at_ns > STALE_NS:
            return None
        return sample

    def close(self) -> None:
        """Wait a moment for the thread; one that hangs in a file ends with the process."""
        self._is_closed = True
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def _read(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._is_closed:
                return
            try:
                self._sample = self._reader.look(self._pids)
            except Exception:  # whatever a file says, the next look is a second away; what is old is unknown
                log.exception("pressure could not be read")


def _name_of(places: Places) -> str:
    """Of the folders that hold the process; processes of one cgroup have one name."""
    return "|".join(str(place) for place in (*places.cpu[:1], places.memory, places.pressure))


def _stalls(
    now: tuple[int, Mapping[str, StallCounter]], before: tuple[int, Mapping[str, StallCounter]] | None
) -> dict[str, Stall]:
    seconds = (now[0] - before[0]) / 1e9 if before else 0.0
    known = before[1] if before else {}
    return {
        resource: Stall(
            _share(counter.some_seconds, known[resource].some_seconds, seconds)
            if resource in known
            else math.nan,
            _share(counter.full_seconds, known[resource].full_seconds, seconds)
            if resource in known
            else math.nan,
            counter.some_avg10_ratio,
            counter.full_avg10_ratio,
        )
        for resource, counter in now[1].items()
    }


def _share(total: float, before: float, seconds: float) -> float:
    return min(max((total - before) / seconds, 0.0), 1.0) if seconds > 0 else math.nan
