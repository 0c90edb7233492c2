# SPDX-License-Identifier: Apache-2.0
"""Every tracepoint that tells of a GPU or of its users, one by one, and which of them stands for what. A
table and the choice from it; asks the host nothing.

A logical event is a question. Where several tracepoints answer it, the first that exists is taken
(`queue_submit`), or all that exist belong together (fences).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

QUEUE_SUBMIT = "queue_submit"
LAUNCH_CALLS = "cuLaunch*"
FALLBACK = "the driver's launch calls (cuLaunchKernel, cuLaunchKernelEx, cuGraphLaunch, …)"


class Use(Enum):
    """What hotstage does with a tracepoint."""

    COUNTED = "counted, by ring where it names one"
    PROGRAM = "a program of its own in bpf/driver.bpf.c"
    ON_REQUEST = "the same, only where [probes] gpu_ioctls is on"
    ELSEWHERE = "attached by another part"
    NONE = "not used"


@dataclass(frozen=True, slots=True)
class Event:
    """One kernel event. `fields`: without which its program is not attached; `optional`: which it uses where
    the layout has them; `rings`: of a counted one, fields that may name its ring.
    """

    event: str
    logical: str
    gives: str
    use: Use = Use.NONE
    fields: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    rings: tuple[str, ...] = ()
    is_of_every_kernel: bool = False

    @property
    def bare_name(self) -> str:
        """By which a raw tracepoint of it is asked for; all system calls share two."""
        group, _, name = self.event.partition(":")
        return "_".join(name.split("_")[:2]) if group == "syscalls" else name

    @property
    def token(self) -> str:
        """As it stands in the names of macros."""
        return self.event.replace(":", "_")

    @property
    def is_used(self) -> bool:
        return self.use is not Use.NONE


_SUBMIT, _QUEUED, _DONE = (
    "work handed to the GPU",
    "work queued for the GPU",
    "work that the GPU has finished",
)
_ONLY = {
    "nv_gpu": "named by a proposal; no public driver has it",
    "gpu_scheduler": "DRM scheduler: amdgpu, xe, nouveau and others",
}
_RING = ("name", "ring", "ring_name", "timeline")
_FENCE = ("driver", "timeline", "context", "seqno")

TABLE: tuple[Event, ...] = (
    # In the order in which `queue_submit` takes them: the first that exists.
    Event("nv_gpu:queue_submit", QUEUE_SUBMIT, f"{_SUBMIT}; {_ONLY['nv_gpu']}", Use.COUNTED, rings=_RING),
    Event(
        "gpu_scheduler:drm_run_job", QUEUE_SUBMIT, f"{_SUBMIT} ({_ONLY['gpu_scheduler']}; to 6.15)",
        Use.COUNTED, rings=_RING,
    ),
    Event(
        "gpu_scheduler:drm_sched_job_run", QUEUE_SUBMIT, f"{_SUBMIT} (the same since 6.16)",
        Use.COUNTED, rings=_RING,
    ),
    Event(
        "amdgpu:amdgpu_cs_ioctl", QUEUE_SUBMIT, f"{_SUBMIT} (amdgpu, by its users)", Use.COUNTED, rings=_RING
    ),
    Event(
        "i915:i915_request_submit", QUEUE_SUBMIT, f"{_SUBMIT} (i915 with low-level tracepoints)", Use.COUNTED
    ),
    Event("xe:xe_sched_job_run", QUEUE_SUBMIT, f"{_SUBMIT} (xe)", Use.COUNTED, rings=_RING),
    Event(
        "gpu_scheduler:drm_sched_job", "queued", f"{_QUEUED}: less what was handed over, what waits",
        Use.COUNTED,
    ),
    Event("gpu_scheduler:drm_sched_job_queue", "queued", f"{_QUEUED} (the same since 6.16)", Use.COUNTED),
    Event("xe:xe_sched_job_exec", "queued", f"{_QUEUED} (xe)", Use.COUNTED),
    Event("gpu_scheduler:drm_sched_process_job", "done", _DONE, Use.COUNTED),
    Event("gpu_scheduler:drm_sched_job_done", "done", f"{_DONE} (the same since 6.16)", Use.COUNTED),
    Event(
        "amdgpu:amdgpu_sched_run_job", "done", "jobs that amdgpu's scheduler put on a ring", Use.COUNTED
    ),
    Event(
        "dma_fence:dma_fence_emit", "fences", "work submitted to any DRM driver, by timeline", Use.PROGRAM,
        fields=_FENCE,
    ),
    Event(
        "dma_fence:dma_fence_signaled", "fences", "when it completed: emitted to signaled, by timeline",
        Use.PROGRAM, fields=_FENCE,
    ),
    Event(
        "dma_fence:dma_fence_destroy", "fences", "fences that go without having signaled", Use.PROGRAM,
        fields=_FENCE,
    ),
    Event(
        "dma_fence:dma_fence_wait_start", "fence waits", "who begins to wait for a GPU in the kernel",
        Use.PROGRAM,
    ),
    Event("dma_fence:dma_fence_wait_end", "fence waits", "how long it waited", Use.PROGRAM),
    Event(
        "gpu_mem:gpu_mem_total", "gpu memory", "GPU memory by process without NVML (DRM drivers)",
        Use.PROGRAM, fields=("gpu_id", "pid", "size"),
    ),
    Event(
        "nvidia:nvidia_dev_xid", "xid", "XIDs at NVIDIA's driver itself, with device and text", Use.PROGRAM,
        fields=("dev", "error_code", "msg"),
    ),
    Event(
        "printk:console", "xid", "XID lines of the kernel log", Use.ELSEWHERE, is_of_every_kernel=True
    ),
    Event(
        "oom:mark_victim", "oom kills", "which process the kernel killed for memory", Use.PROGRAM,
        fields=("pid",), optional=("comm", "anon_rss", "uid"), is_of_every_kernel=True,
    ),
    Event(
        "syscalls:sys_enter_ioctl", "gpu ioctls",
        "ioctls of GPU devices by class; taxes every system call of the host by some 40 ns", Use.ON_REQUEST,
        fields=("fd", "cmd"), is_of_every_kernel=True,
    ),
    Event(
        "syscalls:sys_exit_ioctl", "gpu ioctls", "how long they took and whether they failed", Use.ON_REQUEST,
        fields=("ret",), is_of_every_kernel=True,
    ),
    Event(
        "sched:sched_switch", "scheduler", "when a launching thread lost its CPU, and for how long",
        Use.ELSEWHERE, is_of_every_kernel=True,
    ),
    Event("sched:sched_wakeup", "scheduler", "who woke a launching thread", is_of_every_kernel=True),
    Event(
        "vmscan:mm_vmscan_direct_reclaim_begin", "reclaim",
        "launching threads that look for free memory of the host themselves", Use.ELSEWHERE,
        is_of_every_kernel=True,
    ),
    Event(
        "vmscan:mm_vmscan_memcg_reclaim_begin", "reclaim", "the same of their cgroup's memory", Use.ELSEWHERE
    ),
    Event(
        "exceptions:page_fault_user", "page faults",
        "page faults of launching threads by stage; [probes] page_faults, since every fault of the host pays",
        Use.ELSEWHERE,
    ),
    Event(
        "sched:sched_process_exec", "processes", "new programs; perf's records tell the same",
        is_of_every_kernel=True,
    ),
    Event(
        "sched:sched_process_exit", "processes", "processes that end; perf's records tell the same",
        is_of_every_kernel=True,
    ),
)  # fmt: skip

_INDEX = {event.event: number for number, event in enumerate(TABLE)}


def index_of(event: Event) -> int:
    """Its place in `event_counts`."""
    return _INDEX[event.event]


@dataclass(frozen=True, slots=True)
class Choice:
    """What of the table is to be attached on a host, and why the rest is not: `group:name` → reason."""

    chosen: tuple[Event, ...]
    reasons: Mapping[str, str]

    @property
    def submits(self) -> Event | None:
        """What stands for `queue_submit`; None: the launch calls do."""
        return next((event for event in self.chosen if event.logical == QUEUE_SUBMIT), None)


def choose(layouts: Mapping[str, Collection[str] | None], *, ioctls: bool) -> Choice:
    """`layouts`: `group:name` → the fields of each event that exists, None for those that do not."""
    chosen: list[Event] = []
    reasons: dict[str, str] = {}
    for event in TABLE:
        reason = _why_not(event, layouts.get(event.event), chosen, ioctls=ioctls)
        if reason is None:
            chosen.append(event)
        else:
            reasons[event.event] = reason
    whole = tuple(event for event in chosen if event.use is Use.COUNTED or _is_whole(event, chosen))
    for event in set(chosen) - set(whole):
        reasons[event.event] = f"the other events of its kind ({event.logical}) are absent"
    return Choice(whole, reasons)


def _why_not(
    event: Event, fields: Collection[str] | None, chosen: Collection[Event], *, ioctls: bool
) -> str | None:
    if event.use is Use.NONE:
        return "not used"
    if event.use is Use.ELSEWHERE:
        return "attached by another part of the agent"
    if fields is None:
        return "tracefs has no such event: the driver is not loaded, or does not have it"
    if event.use is Use.ON_REQUEST and not ioctls:
        return "off: it taxes every system call of the host; [probes] gpu_ioctls = true"
    lacking = [field for field in event.fields if field not in fields]
    if lacking:
        return f"its layout on this kernel lacks {', '.join(lacking)}"
    if event.logical == QUEUE_SUBMIT and (first := _first(chosen)):
        return f"{first.event} stands for it, being earlier in the list"
    return None


def _first(chosen: Collection[Event]) -> Event | None:
    return next((event for event in chosen if event.logical == QUEUE_SUBMIT), None)


def _is_whole(event: Event, chosen: Collection[Event]) -> bool:
    """Programs of one question (a beginning and an end) are attached together or not at all."""
    kin = [other for other in TABLE if other.logical == event.logical and other.use is event.use]
    return all(other in chosen for other in kin)
