# SPDX-License-Identifier: Apache-2.0
"""Every tracepoint that tells of a GPU or of its users, one by one: a table, and what is here.

Present is what tracefs lists, or what takes a program; a present one is attached to for real for a moment.
`is_used` says what hotstage does with it today, never what it might.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.kernel_files import KernelFiles, read_kernel_files
from hotstage.cli.doctor.trivial_program import AttachTrial, try_tracepoints

TRACEPOINTS = Area.TRACEPOINTS
QUEUE_SUBMIT = "queue_submit"
FALLBACK = "the driver's launch calls (cuLaunchKernel, cuLaunchKernelEx, cuGraphLaunch, …)"


@dataclass(frozen=True, slots=True)
class Tracepoint:
    """One kernel event. `logical` is the question it answers; several may answer the same one."""

    event: str
    logical: str
    gives: str
    is_used: bool = False
    is_of_every_kernel: bool = False

    @property
    def bare_name(self) -> str:
        return self.event.partition(":")[2]


_SUBMIT, _QUEUED, _DONE = (
    "work handed to the GPU",
    "work queued for the GPU",
    "work that the GPU has finished",
)
_ONLY = {
    "nv_gpu": "named by a proposal; no public driver has it",
    "gpu_scheduler": "DRM scheduler: amdgpu, xe, nouveau and others",
}

TABLE: tuple[Tracepoint, ...] = (
    # In the order in which `queue_submit` takes them: the first that exists.
    Tracepoint("nv_gpu:queue_submit", QUEUE_SUBMIT, f"{_SUBMIT}; {_ONLY['nv_gpu']}"),
    Tracepoint("gpu_scheduler:drm_run_job", QUEUE_SUBMIT, f"{_SUBMIT} ({_ONLY['gpu_scheduler']}; to 6.15)"),
    Tracepoint("gpu_scheduler:drm_sched_job_run", QUEUE_SUBMIT, f"{_SUBMIT} (the same since 6.16)"),
    Tracepoint("amdgpu:amdgpu_cs_ioctl", QUEUE_SUBMIT, f"{_SUBMIT} (amdgpu, by its users)"),
    Tracepoint("i915:i915_request_submit", QUEUE_SUBMIT, f"{_SUBMIT} (i915 with low-level tracepoints)"),
    Tracepoint("xe:xe_sched_job_run", QUEUE_SUBMIT, f"{_SUBMIT} (xe)"),
    Tracepoint("gpu_scheduler:drm_sched_job", "queued", f"{_QUEUED}: its wait until it is handed over"),
    Tracepoint("gpu_scheduler:drm_sched_job_queue", "queued", f"{_QUEUED} (the same since 6.16)"),
    Tracepoint("xe:xe_sched_job_exec", "queued", f"{_QUEUED} (xe)"),
    Tracepoint("gpu_scheduler:drm_sched_process_job", "done", f"{_DONE}: its time on the GPU"),
    Tracepoint("gpu_scheduler:drm_sched_job_done", "done", f"{_DONE} (the same since 6.16)"),
    Tracepoint("amdgpu:amdgpu_sched_run_job", "done", "which ring of an AMD GPU a job went to"),
    Tracepoint("dma_fence:dma_fence_emit", "fences", "work submitted to any DRM driver, by context"),
    Tracepoint("dma_fence:dma_fence_signaled", "fences", "when submitted work of any DRM driver completed"),
    Tracepoint("dma_fence:dma_fence_wait_start", "fences", "who begins to wait for a GPU in the kernel"),
    Tracepoint("dma_fence:dma_fence_wait_end", "fences", "how long it waited"),
    Tracepoint("gpu_mem:gpu_mem_total", "gpu memory", "GPU memory by process without NVML (DRM drivers)"),
    Tracepoint("nvidia:nvidia_dev_xid", "xid", "XIDs at NVIDIA's driver itself, with device and text"),
    Tracepoint("printk:console", "xid", "XID lines of the kernel log", is_used=True, is_of_every_kernel=True),
    Tracepoint(
        "oom:mark_victim", "oom kills", "which process the kernel killed for memory", is_of_every_kernel=True
    ),
    Tracepoint(
        "sched:sched_switch", "scheduler", "when a launching thread lost its CPU, and for how long",
        is_of_every_kernel=True,
    ),
    Tracepoint("sched:sched_wakeup", "scheduler", "who woke a launching thread", is_of_every_kernel=True),
    Tracepoint(
        "sched:sched_process_exec", "processes", "new programs; perf's records tell the same",
        is_of_every_kernel=True,
    ),
    Tracepoint(
        "sched:sched_process_exit", "processes", "processes that end; perf's records tell the same",
        is_of_every_kernel=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """One row of the table on this host; `is_present` None: this user cannot tell."""

    tracepoint: Tracepoint
    is_present: bool | None
    is_readable: bool
    attach: AttachTrial


def look_at_tracepoints(host: Host) -> tuple[Seen, ...]:
    """A trial for `Host.once`: tracefs first, and each event that may be there attached to."""
    files = host.once(read_kernel_files)
    possible = [row for row in TABLE if files.events is None or row.event in files.events]
    trials = try_tracepoints(row.bare_name for row in possible) if possible else {}
    return tuple(_seen(row, files, trials.get(row.bare_name, AttachTrial(False, "ENOENT"))) for row in TABLE)


def _seen(row: Tracepoint, files: KernelFiles, trial: AttachTrial) -> Seen:
    is_listed = None if files.events is None else row.event in files.events
    return Seen(row, trial.is_present if is_listed is None else is_listed, row.event in files.readable, trial)


def check_tracepoints(host: Host) -> Iterator[Finding]:
    yield _tracefs(host.once(read_kernel_files))
    seen = host.once(look_at_tracepoints)
    yield _queue_submit(seen)
    for one in seen:
        yield _finding(one)


def _tracefs(files: KernelFiles) -> Finding:
    data = {"mount": files.tracefs, "events": None if files.events is None else len(files.events)}
    mount = "mount -t tracefs tracefs /sys/kernel/tracing"
    if files.events is None:
        return Finding(
            TRACEPOINTS, "tracefs", Status.UNKNOWN,
            "not mounted, or not to be read: what follows was told by trying",
            f"{mount}; its files take CAP_DAC_READ_SEARCH", data=data,
        )  # fmt: skip
    if files.is_private:
        return Finding(
            TRACEPOINTS, "tracefs", Status.OK,
            f"{len(files.events)} events, by a mount for this look only; nobody has it mounted, bcc needs it",
            data=data,
        )  # fmt: skip
    return Finding(
        TRACEPOINTS, "tracefs", Status.OK, f"{len(files.events)} events at /{files.tracefs}", data=data
    )


def _queue_submit(seen: tuple[Seen, ...]) -> Finding:
    """Which event stands for `queue_submit` on this host."""
    chain = [one for one in seen if one.tracepoint.logical == QUEUE_SUBMIT]
    first = next((one for one in chain if one.is_present), None)
    unknown = [one.tracepoint.event for one in chain if one.is_present is None]
    data = {
        "chain": [one.tracepoint.event for one in chain],
        "present": first.tracepoint.event if first else None,
        "in_use": "launch calls",
    }
    if first is not None:
        detail = f"present: {first.tracepoint.event}, not used yet; today {FALLBACK} stand for it"
    elif unknown:
        detail = f"not known ({', '.join(unknown)} could not be tried); {FALLBACK} stand for it"
    else:
        detail = (
            f"none of {', '.join(one.tracepoint.event for one in chain)}; {FALLBACK} stand for it: NVIDIA"
            " submits from user space"
        )
    return Finding(TRACEPOINTS, QUEUE_SUBMIT, Status.OK if first else Status.ABSENT, detail, data=data)


def _finding(one: Seen) -> Finding:
    row = one.tracepoint
    data = {
        "present": one.is_present,
        "readable": one.is_readable,
        "attached": one.attach.error is None,
        "attach_error": one.attach.error,
        "used": row.is_used,
        "logical": row.logical,
        "gives": row.gives,
    }
    features = (row.logical,)
    if one.is_present is None:
        detail = f"cannot be told ({one.attach.error}); would give {row.gives}"
        return Finding(
            TRACEPOINTS,
            row.event,
            Status.UNKNOWN,
            detail,
            "CAP_BPF and CAP_PERFMON",
            features=features,
            data=data,
        )
    if not one.is_present:
        status = Status.WARN if row.is_used else Status.ABSENT
        odd = "; every ordinary kernel has it" if row.is_of_every_kernel else ""
        return Finding(
            TRACEPOINTS,
            row.event,
            status,
            f"absent: would give {row.gives}{odd}",
            "a kernel with CONFIG_TRACEPOINTS that has it" if row.is_used else None,
            features=features,
            data=data,
        )
    use = "used" if row.is_used else "not used yet"
    if one.attach.error is not None:
        status = Status.WARN if row.is_used else Status.OK
        detail = f"present, {use}, but not for this user ({one.attach.error}): gives {row.gives}"
        return Finding(
            TRACEPOINTS, row.event, status, detail, "CAP_BPF and CAP_PERFMON", features=features, data=data
        )
    return Finding(
        TRACEPOINTS, row.event, Status.OK, f"present, attachable, {use}: gives {row.gives}",
        features=features, data=data,
    )  # fmt: skip
