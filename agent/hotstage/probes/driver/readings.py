# SPDX-License-Identifier: Apache-2.0
"""Rows of the driver's maps → values of the report. Pure; names are cleaned here, being a driver's or a
process's own words.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.driver.ioctls import OTHER_NUMBER, class_of
from hotstage.probes.driver.pieces import Rows
from hotstage.probes.driver.report import (
    FenceWaits,
    GpuMemory,
    IoctlClass,
    OomKill,
    SlowIoctl,
    Timeline,
)
from hotstage.probes.maps.driver import UNKNOWN
from hotstage.probes.samples import XidEvent
from hotstage.text import clean_name, normal_bus_id

QUANTILE_MIN = 20
_FIRST_EXPONENT, _OCTAVE = -22, 8

Patterns = tuple[tuple[str, str], ...]


def quantile_seconds(counts: NDArray[np.uint64], q: float) -> float | None:
    """Nearest rank in a scale-3 histogram, uint64 (242,) → seconds: the geometric middle of its slot.

    None below 20 values, and for a rank that lies in the under- or overflow: it has no other edge.
    """
    total = int(counts.sum())
    if total < QUANTILE_MIN:
        return None
    rank = max(1, int(np.ceil(q * total)))
    slot = int(np.searchsorted(np.cumsum(counts), rank))
    if slot == 0 or slot == len(counts) - 1:
        return None
    middle: float = 2.0 ** (_FIRST_EXPONENT + (slot - 0.5) / _OCTAVE)
    return middle


def timelines(stats: Rows, open_fences: Rows, now_ns: int) -> tuple[Timeline, ...]:
    """By driver and timeline; `now_ns` is the moment of the read."""
    oldest: dict[tuple[bytes, bytes], int] = {}
    opened: defaultdict[tuple[bytes, bytes], int] = defaultdict(int)
    for row in open_fences[1]:
        key = row["driver"], row["timeline"]
        opened[key] += 1
        oldest[key] = min(oldest.get(key, now_ns), int(row["emitted_ns"]))
    return tuple(
        Timeline(
            driver=clean_name(key["driver"]),
            timeline=clean_name(key["timeline"]),
            emitted=int(stat["emitted"]),
            signaled=(signaled := int(stat["signaled"])),
            open=opened[name := (key["driver"], key["timeline"])],
            oldest_open_seconds=(now_ns - oldest[name]) / 1e9 if name in oldest else None,
            total_seconds=int(stat["total_ns"]) / 1e9,
            max_seconds=int(stat["max_ns"]) / 1e9 if signaled else None,
            p50_seconds=quantile_seconds(stat["counts"], 0.5),
            p99_seconds=quantile_seconds(stat["counts"], 0.99),
        )
        for key, stat in zip(*stats, strict=True)
    )


def fence_waits(rows: Rows) -> tuple[FenceWaits, ...]:
    return tuple(
        FenceWaits(int(key["tgid"]), int(stat["waits"]), int(stat["total_ns"]) / 1e9)
        for key, stat in zip(*rows, strict=True)
    )


def gpu_memory(rows: Rows) -> tuple[GpuMemory, ...]:
    return tuple(
        GpuMemory(int(key["gpu"]), int(key["tgid"]) or None, int(value["bytes"]), int(value["at_ns"]))
        for key, value in zip(*rows, strict=True)
    )


def ioctl_classes(rows: Rows, patterns: Patterns) -> tuple[IoctlClass, ...]:
    """Numbers of one class of one kind of device are summed up."""
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for key, stat in zip(*rows, strict=True):
        into = sums[_device(int(key["device"]), patterns), class_of(int(key["number"]))]
        for place, name in enumerate(("count", "errors", "slow", "total_ns")):
            into[place] += int(stat[name])
        into[4] = max(into[4], int(stat["max_ns"]))
    return tuple(
        IoctlClass(device, kind, count, errors, slow, total_ns / 1e9, max_ns / 1e9)
        for (device, kind), (count, errors, slow, total_ns, max_ns) in sorted(sums.items())
    )


def rings(rows: Rows) -> dict[str, int]:
    """Jobs by the name of their ring; names that are alike once cleaned are one."""
    found: defaultdict[str, int] = defaultdict(int)
    for key, value in zip(*rows, strict=True):
        found[clean_name(key["name"])] += int(value["count"])
    return dict(found)


def oom_kill(row: np.void) -> OomKill:
    anonymous_kib, uid = int(row["anon_kib"]), int(row["uid"])
    return OomKill(
        at_ns=int(row["at_ns"]),
        pid=int(row["tgid"]),
        name=clean_name(row["comm"]) or None,
        uid=None if uid == UNKNOWN else uid,
        anonymous_bytes=None if anonymous_kib == UNKNOWN else anonymous_kib * 1024,
    )


def slow_ioctl(row: np.void, patterns: Patterns) -> SlowIoctl:
    number = int(row["number"])
    return SlowIoctl(
        at_ns=int(row["at_ns"]),
        pid=int(row["tgid"]),
        tid=int(row["tid"]),
        device=_device(int(row["device"]), patterns),
        kind=class_of(number),
        number=None if number == OTHER_NUMBER else number,
        seconds=int(row["duration_ns"]) / 1e9,
        result=int(row["result"]),
    )


def xid_event(row: np.void) -> XidEvent:
    text = clean_name(row["text"])
    return XidEvent(
        int(row["at_ns"]), normal_bus_id(clean_name(row["bus"])), int(row["xid"]), text, "tracepoint"
    )


def _device(number: int, patterns: Patterns) -> str:
    return patterns[number][0] if number < len(patterns) else "other"
