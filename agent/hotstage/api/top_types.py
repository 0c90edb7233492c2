# SPDX-License-Identifier: Apache-2.0
"""What `hotstage top --json` says, field by field. Values only. Unknown is null, never 0.

Rates and waiting threads are means over the agent's last 10 s; losses and the agent's CPU time are of the
interval between two looks.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

_THREADS = "threads, on average: 0.5 is half of one thread's time; counted once a call has returned"
_OPEN = "age of the longest such call in flight, which the mean does not know yet; null: no thread is in one"
Open = Annotated[float | None, Meta(description=_OPEN)]
Threads = Annotated[float | None, Meta(description=_THREADS)]
Rate = Annotated[float | None, Meta(description="per second")]
Ratio = Annotated[float | None, Meta(description="0..1")]


class TopLoss(Struct, frozen=True, gc=False):
    """What could not be kept or attributed since the look before."""

    name: str
    count: int
    means: str
    falsifies: str
    remedy: str


class TopHost(Struct, frozen=True):
    """The host as a whole, and the agent that watches it."""

    host: str
    loader: str
    rung: str
    probes: Literal["on", "off"]
    probes_reason: Annotated[str | None, Meta(description="why they are off")]
    probes_off_since: Annotated[Time | None, Meta(description="since when they are off")]
    agent_cpu_ratio: Annotated[float | None, Meta(description="of one core, over the interval")]
    agent_rss_bytes: int | None
    governor: Annotated[Literal["on", "off"] | None, Meta(description="null: the agent has none")]
    governor_limit_ratio: Annotated[
        float | None, Meta(description="of a process's CPU time, that its probes may cost")
    ]
    windows_open: Annotated[list[str], Meta(description="the kind of each open window, the newest first")]
    processes_watched: int
    requests_in_flight: int | None
    launches_per_second: Rate
    calls_per_second: Rate
    errors_per_second: Rate
    unattributed_ratio: Annotated[
        float | None, Meta(description="launch-class calls without a stage ÷ all of them")
    ]
    stale: Annotated[list[str], Meta(description="sources whose values are too old to be shown")]


class TopProcess(Struct, frozen=True, gc=False):
    """A process that is watched, or that holds memory of a GPU."""

    pid: int
    name: str | None
    launches_per_second: Rate
    calls_per_second: Rate
    sync_wait_threads: Threads
    copy_wait_threads: Threads
    alloc_wait_threads: Threads
    sync_open_seconds: Open
    copy_open_seconds: Open
    alloc_open_seconds: Open
    errors_per_second: Rate
    longest_call_seconds: Annotated[float | None, Meta(description="of calls that are open; null: none is")]
    gpu_memory_bytes: int | None
    gpu_memory_is_complete: Annotated[
        bool | None, Meta(description="false: it has no less than is told; null: nothing is known of it")
    ]
    cpu_wait_threads: Annotated[float | None, Meta(description="threads that wait for a CPU, on average")]
    requests_in_flight: int | None
    unattributed_ratio: Ratio
    probe_cost_ratio: Annotated[float | None, Meta(description="of the process's CPU time, estimated")]
    probe_level: Annotated[str | None, Meta(description="full, or what the governor left of its probes")]
    state: Annotated[
        str | None,
        Meta(
            description="attached, or why not all of it is: failed, denied, limited, off; null: not watched"
        ),
    ]


class TopStage(Struct, frozen=True, gc=False):
    """A stage of one modality."""

    stage: str
    modality: str
    runs_per_second: Rate
    runs_in_flight: int | None
    oldest_seconds: float | None
    p95_seconds: float | None
    launches_per_second: Rate
    calls_per_second: Rate
    sync_wait_threads: Threads
    copy_wait_threads: Threads
    alloc_wait_threads: Threads
    sync_open_seconds: Open
    copy_open_seconds: Open
    alloc_open_seconds: Open
    gpu_memory_bytes: int | None
    cpu_wait_threads: Annotated[float | None, Meta(description="threads that wait for a CPU, on average")]
    windows_open: Annotated[list[str], Meta(description="kinds of the open windows that name this stage")]


class Top(Struct, frozen=True):
    """One moment of a host."""

    at: Annotated[Time | None, Meta(description="of the figures; null: the first second is not over")]
    at_ns: int | None
    interval_seconds: Annotated[float | None, Meta(description="between the two looks; null: one alone")]
    host: TopHost
    processes: list[TopProcess]
    stages: list[TopStage]
    losses: Annotated[
        list[TopLoss] | None, Meta(description="null: unknown, there was no look before or another agent")
    ]
