# SPDX-License-Identifier: Apache-2.0
"""What a cgroup's files say of pressure, throttling and memory, v2 and v1, as counters of one moment.

Reads below injected roots, bounded; a file that is missing tells nothing. It may block as long as the file
system does: `pressure.py` calls it from a thread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hotstage.small_files import text_of

RESOURCES = ("cpu", "memory", "io")
EVENTS = ("high", "max", "oom", "oom_kill")

_BYTES_LIMIT = 16_384
"""No file that is read here is longer."""
_DEPTH_LIMIT = 32
_NO_LIMIT_BYTES = 1 << 60
"""v1 says "no limit" with a number near 2^63."""


@dataclass(frozen=True, slots=True)
class StallCounter:
    """One pressure file: total times, and the kernel's ten-second means as ratios. NaN: no such line."""

    some_seconds: float
    full_seconds: float
    some_avg10_ratio: float
    full_avg10_ratio: float


@dataclass(frozen=True, slots=True)
class Places:
    """Where the files of one process's cgroup are: innermost first, as the CPU's quota may be further up."""

    cpu: tuple[Path, ...]
    memory: Path | None
    pressure: Path | None


@dataclass(frozen=True, slots=True)
class CgroupCounters:
    """NaN is unknown; for a limit also: there is none."""

    periods: float
    throttled_periods: float
    throttled_seconds: float
    memory_bytes: float
    memory_high_bytes: float
    memory_max_bytes: float
    events: Mapping[str, float]
    stalls: Mapping[str, StallCounter]


def places_of(pid: int, proc_root: Path, cgroup_root: Path) -> Places | None:
    """Where the process's cgroup is; None when it is gone or in none that could be found."""
    cpu: list[Path] = []
    memory = pressure = None
    for line in _text(proc_root / str(pid) / "cgroup").splitlines()[:64]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = [part for part in PurePosixPath(path).parts if part not in ("/", "..", ".")][:_DEPTH_LIMIT]
        if controllers == "":
            for mount in (cgroup_root, cgroup_root / "unified"):
                folder = mount.joinpath(*names)
                if not (folder / "cgroup.procs").exists() or not (mount / "cgroup.controllers").exists():
                    continue
                pressure = folder
                memory = memory or (folder if (folder / "memory.current").exists() else None)
                cpu += _upwards(mount, names) if not cpu else ()
        elif "memory" in controllers.split(","):
            memory = cgroup_root.joinpath(controllers, *names)
        elif "cpu" in controllers.split(","):
            cpu = list(_upwards(cgroup_root / controllers, names))
    return Places(tuple(cpu), memory, pressure) if cpu or memory or pressure else None


def read_cgroup(places: Places) -> CgroupCounters:
    """Its counters now."""
    periods, throttled, seconds = max(
        (_throttling(folder) for folder in places.cpu), key=lambda each: each[2], default=(math.nan,) * 3
    )
    memory = places.memory or Path("/nowhere")
    return CgroupCounters(
        periods=periods,
        throttled_periods=throttled,
        throttled_seconds=seconds,
        memory_bytes=_first(memory / "memory.current", memory / "memory.usage_in_bytes"),
        memory_high_bytes=_first(memory / "memory.high"),
        memory_max_bytes=_first(memory / "memory.max", memory / "memory.limit_in_bytes"),
        events=_events(memory),
        stalls=read_stalls(places.pressure, "{}.pressure") if places.pressure else {},
    )


def read_stalls(folder: Path, name: str) -> dict[str, StallCounter]:
    """Resource → its pressure file's numbers; resources without a file are absent. `name` has one `{}`."""
    found: dict[str, StallCounter] = {}
    for resource in RESOURCES:
        lines = {
            words[0]: words[1:]
            for line in _text(folder / name.format(resource)).splitlines()
            if (words := line.split())
        }
        some, full = (
            dict(word.partition("=")[::2] for word in lines.get(which, ())) for which in ("some", "full")
        )
        if some:
            found[resource] = StallCounter(
                _number(some.get("total")) / 1e6,
                _number(full.get("total")) / 1e6,
                _number(some.get("avg10")) / 100,
                _number(full.get("avg10")) / 100,
            )
    return found


def _throttling(folder: Path) -> tuple[float, float, float]:
    """(periods, throttled ones, seconds of it) of the quota; zero seconds where nothing is told, so that it
    loses against one that tells.
    """
    stat = _table(folder / "cpu.stat")
    if "nr_periods" not in stat:
        return math.nan, math.nan, 0.0
    seconds = (
        stat["throttled_usec"] / 1e6 if "throttled_usec" in stat else stat.get("throttled_time", 0) / 1e9
    )
    return stat["nr_periods"], stat.get("nr_throttled", math.nan), seconds


def _events(memory: Path) -> dict[str, float]:
    found = {name: count for name, count in _table(memory / "memory.events").items() if name in EVENTS}
    if found:
        return found
    failed = _first(memory / "memory.failcnt")  # v1: how often the limit was met
    kills = _table(memory / "memory.oom_control").get("oom_kill", math.nan)
    return {name: count for name, count in (("max", failed), ("oom_kill", kills)) if not math.isnan(count)}


def _upwards(mount: Path, names: list[str]) -> Iterator[Path]:
    for depth in range(len(names), -1, -1):
        yield mount.joinpath(*names[:depth])


def _first(*files: Path) -> float:
    """The number in the first file that exists; NaN for `max` and for what v1 writes instead."""
    for file in files:
        text = _text(file).strip()
        if text:
            amount = _number(text)
            return math.nan if amount >= _NO_LIMIT_BYTES else amount
    return math.nan


def _table(file: Path) -> dict[str, float]:
    """`name number` lines."""
    rows = (line.split() for line in _text(file).splitlines())
    return {row[0]: float(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else math.nan
    except ValueError:
        return math.nan


def _text(file: Path) -> str:
    return text_of(file, _BYTES_LIMIT)
