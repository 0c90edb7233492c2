# SPDX-License-Identifier: Apache-2.0
"""What the driver's tracepoints have said, as values ready for JSON. Nothing is read here.

Times are CLOCK_MONOTONIC ns, durations seconds, memory bytes. None is unknown, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventState(StrEnum):
    """How a tracepoint stands."""

    STARTING = "starting"
    ATTACHED = "attached"
    ABSENT = "absent"
    OFF = "off"
    REFUSED = "refused"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class EventReport:
    """One tracepoint. `hits`, `last_ns` and `since_ns` (when its programs were attached) are None unless it
    is attached, `last_ns` also before its first hit; `reason` says why it is not attached.
    """

    event: str
    logical: str
    gives: str
    state: EventState
    hits: int | None
    last_ns: int | None
    since_ns: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class QueueSubmit:
    """What stands for `queue_submit`: a tracepoint, or (`is_derived`) the launch calls that are counted
    anyway. `count` is None while it is not known yet.
    """

    through: str
    is_derived: bool
    count: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Fences of one timeline of a driver. Latency is emitted → signaled, of fences whose emission was seen;
    quantiles are nearest-rank by scale-3 slots (±4.5 %), None below 20 fences. `open`: emitted, not signaled.
    """

    driver: str
    timeline: str
    emitted: int
    signaled: int
    open: int
    oldest_open_seconds: float | None
    total_seconds: float
    max_seconds: float | None
    p50_seconds: float | None
    p99_seconds: float | None


@dataclass(frozen=True, slots=True)
class FenceWaits:
    """How often and how long a process waited for fences in the kernel."""

    pid: int
    waits: int
    total_seconds: float


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """`gpu_mem_total` as last told; `pid` None is the whole GPU."""

    gpu: int
    pid: int | None
    bytes: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class OomKill:
    """A process that the kernel chose to kill for memory."""

    at_ns: int
    pid: int
    name: str | None
    uid: int | None
    anonymous_bytes: int | None
    uses_gpu: bool | None = None
    """Whether it was known to use a GPU."""


@dataclass(frozen=True, slots=True)
class IoctlClass:
    """Ioctls of one kind of GPU device and one class that have returned."""

    device: str
    kind: str
    count: int
    errors: int
    slow: int
    total_seconds: float
    max_seconds: float


@dataclass(frozen=True, slots=True)
class SlowIoctl:
    """`number`: type and number of the command as in <linux/ioctl.h>, None for one that is not told apart."""

    at_ns: int
    pid: int
    tid: int
    device: str
    kind: str
    number: int | None
    seconds: float
    result: int


@dataclass(frozen=True, slots=True)
class DriverReport:
    """All of it at one moment. `state` is `starting`, `watching` or `off`; `lost`: records and keys that
    found no room.

    Of `oom_kills` and `slow_ioctls` the last 32 are here, all are in `oom_kills_total` and the classes'
    `slow`. None of a list: what would fill it is not attached.
    """

    state: str
    reason: str | None
    remedy: str | None
    queue_submit: QueueSubmit
    events: tuple[EventReport, ...]
    rings: dict[str, int]
    timelines: tuple[Timeline, ...] | None
    fence_waits: tuple[FenceWaits, ...] | None
    fence_wait_seconds_total: float | None
    """Of all processes, those that have gone too."""
    memory: tuple[GpuMemory, ...] | None
    oom_kills_total: int | None
    oom_kills_gpu_total: int | None
    """Of them, those of processes that used a GPU."""
    oom_kills: tuple[OomKill, ...] | None
    ioctls: tuple[IoctlClass, ...] | None
    slow_ioctls: tuple[SlowIoctl, ...] | None
    lost: int
