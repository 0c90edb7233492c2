# SPDX-License-Identifier: Apache-2.0
"""Every column once: name, entities, unit, source, help. Docs, rules and exported metrics read this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotstage.frame.entity import EntityKind

HOST, GPU, PROCESS = EntityKind.host, EntityKind.gpu, EntityKind.process
STAGE, ENDPOINT, INSTANCE, ROUTE = (
    EntityKind.stage,
    EntityKind.endpoint,
    EntityKind.instance,
    EntityKind.route,
)
MODALITY = EntityKind.modality

Source = Literal["requests", "calls", "devices", "host", "engines", "driver"]


@dataclass(frozen=True, slots=True)
class Column:
    """`unit` is a Prometheus base unit; `1/s` for rates, `ratio` for 0..1, empty for plain numbers."""

    name: str
    entities: tuple[EntityKind, ...]
    unit: str
    source: Source
    help: str


_SERVED = (HOST, ENDPOINT, INSTANCE, ROUTE)
_RUNNING = (HOST, INSTANCE, PROCESS)

_OF_ENGINE = (
    ("engine_queue", "", "requests that wait in the engine's scheduler, by its own account"),
    ("engine_running", "", "requests in the engine's running batches"),
    ("engine_kv_use_ratio", "ratio", "KV cache in use ÷ KV cache, of the fullest pool"),
    ("engine_request_rate", "1/s", "requests that the engine ended, over the last 10 s"),
    ("engine_prompt_token_rate", "1/s", "prompt tokens, over the last 10 s"),
    ("engine_output_token_rate", "1/s", "output tokens, over the last 10 s"),
    ("engine_preemption_rate", "1/s", "requests put back for want of KV cache, over the last 10 s"),
    ("engine_ttft_p50_seconds", "s", "time to first token, median of the engine's last 60 s"),
    ("engine_ttft_p95_seconds", "s", "time to first token, p95 from the engine's histogram"),
    ("engine_itl_p50_seconds", "s", "time between tokens, median of the engine's last 60 s"),
    ("engine_itl_p95_seconds", "s", "time between tokens, p95 from the engine's histogram"),
    ("engine_e2e_p50_seconds", "s", "whole request, median of the engine's last 60 s"),
    ("engine_e2e_p95_seconds", "s", "whole request, p95 from the engine's histogram"),
    ("engine_e2e_mean_seconds", "s", "whole request, mean of the engine's last 60 s; exact"),
    ("engine_queue_p95_seconds", "s", "wait in the engine's queue, p95 from its histogram"),
    ("engine_queue_mean_seconds", "s", "wait in the engine's queue, mean of its last 60 s; exact"),
    ("engine_prefill_p95_seconds", "s", "prefill of a request, p95 from the engine's histogram"),
    ("engine_decode_p95_seconds", "s", "decode of a request, p95 from the engine's histogram"),
    ("engine_sample_age_seconds", "s", "age of the engine's last page"),
)
ENGINE_COLUMNS = tuple(Column(name, (INSTANCE,), unit, "engines", help) for name, unit, help in _OF_ENGINE)
"""What the engine of an instance says of itself."""

_OF_TOKENS = (
    ("ttft_samples", "", "requests of the last 60 s whose first token is known"),
    ("ttft_p50_seconds", "s", "begin of a request to its first token, median over the last 60 s"),
    ("ttft_p95_seconds", "s", "begin of a request to its first token, nearest-rank p95 over the last 60 s"),
    ("itl_samples", "", "requests of the last 60 s whose time between tokens is known"),
    ("itl_p50_seconds", "s", "time between tokens of a request, median over the last 60 s"),
    ("itl_p95_seconds", "s", "time between tokens of a request, nearest-rank p95 over the last 60 s"),
)
TOKEN_COLUMNS = tuple(
    Column(name, (HOST, MODALITY), unit, "requests", help) for name, unit, help in _OF_TOKENS
)
"""What the marks of finished requests say of their tokens; a request's modality is that of its encoder."""

_OF_SCHEDULING = (
    ("cpu_wait_threads", "", "threads in the GPU path that wait for a CPU, on average over the last 10 s"),
    ("cpu_preempted_threads", "", "of them, those that were taken off the CPU"),
    ("cpu_preemption_rate", "1/s", "how often they were, over the last 10 s"),
    ("call_sleep_threads", "", "threads asleep inside a timed call, on average over the last 10 s"),
    ("reclaim_threads", "", "threads that reclaim memory themselves, on average over the last 10 s"),
    (
        "page_fault_rate",
        "1/s",
        "page faults of user instructions of threads in the GPU path, with [probes] page_faults",
    ),
)
SCHEDULING_COLUMNS = (
    *(Column(name, (*_RUNNING, STAGE), unit, "host", help) for name, unit, help in _OF_SCHEDULING),
    Column("cpu_wait_p95_seconds", (STAGE,), "s", "host", "one wait for a CPU, p95 over the last 10 s"),
)
"""What the scheduler says of threads that made a call or a mark; counted once a wait is over."""

_OF_MEMORY = (
    (
        "memory_live_bytes",
        (GPU, PROCESS, STAGE),
        "bytes",
        "memory for GPUs allocated and not freed; exact or absent",
    ),
    ("memory_high_bytes", (STAGE,), "bytes", "the most that a stage had at once, each process on its own"),
    ("memory_oldest_age_seconds", (PROCESS, STAGE), "s", "age of the oldest live allocation"),
    ("memory_pinned_bytes", (HOST, PROCESS), "bytes", "page-locked memory of the host"),
    ("memory_mapped_bytes", (PROCESS,), "bytes", "addresses with physical memory behind them"),
    ("memory_reserved_bytes", (PROCESS,), "bytes", "addresses reserved"),
    (
        "memory_failed_fitting",
        (GPU,),
        "",
        "allocations of the last 60 s that failed though as much was free",
    ),
    (
        "memory_fragmentation_ratio",
        (GPU,),
        "ratio",
        "free memory that serves no large allocation, by its basis",
    ),
    (
        "memory_fragmentation_basis",
        (GPU,),
        "",
        "4 torch, 3 pool, 2 ledger, 1 inferred (a bound), 0 unknown",
    ),
)
MEMORY_COLUMNS = tuple(
    Column(name, entities, unit, "calls", help) for name, entities, unit, help in _OF_MEMORY
)
"""What the ledger of allocations says."""
_OF_STALLS = (
    ("stall_ratio", "share of the last second in which a task stood still for {}"),
    ("full_stall_ratio", "share of the last second in which all tasks that were not idle stood still for {}"),
    ("stall_avg10_ratio", "the kernel's mean over some 10 s of the time in which a task stood still for {}"),
    ("full_stall_avg10_ratio", "the same of the time in which all tasks that were not idle did for {}"),
)
_OF_CGROUPS = (
    ("cpu_throttled_ratio", "ratio", "periods of the CPU quota in which it was used up ÷ all of them"),
    ("cpu_throttled_cpus", "", "CPUs on which tasks were held back by the quota, on average"),
    ("cgroup_memory_bytes", "bytes", "memory of the cgroup, page cache among it"),
    ("cgroup_memory_high_bytes", "bytes", "where the kernel slows the cgroup down; none: no such limit"),
    ("cgroup_memory_max_bytes", "bytes", "where the kernel kills in the cgroup; none: no such limit"),
    ("memory_high_events", "", "how often the cgroup was slowed down for its memory, since it was made"),
    ("memory_max_events", "", "how often the cgroup met its limit of memory, since it was made"),
    ("oom_events", "", "how often the cgroup had no memory left, since it was made"),
    ("oom_kill_events", "", "processes killed for that, since the cgroup was made"),
    ("minor_fault_rate", "1/s", "page faults whose page was in memory"),
    ("major_fault_rate", "1/s", "page faults that waited for a disk"),
)
PRESSURE_COLUMNS = (
    *(
        Column(f"{resource}_{name}", _RUNNING, "ratio", "host", help.format(what))
        for resource, what in (("cpu", "a CPU"), ("memory", "memory"), ("io", "a disk"))
        for name, help in _OF_STALLS
    ),
    *(Column(name, (INSTANCE, PROCESS), unit, "host", help) for name, unit, help in _OF_CGROUPS),
)
"""What the kernel says of pressure (PSI) on the host and on cgroups, and of what holds a cgroup back."""

_OF_WAITS = (
    ("sync_wait_threads", "threads that waited for the GPU in a call, on average over the last 10 s"),
    ("copy_wait_threads", "threads in a call that copied or filled memory, on average over the last 10 s"),
    ("alloc_wait_threads", "threads in a call that allocated or freed, on average over the last 10 s"),
)
_OF_OPEN_CALLS = (
    ("sync_open_seconds", "age of the longest wait for the GPU that is in flight; none: no thread is in one"),
    ("copy_open_seconds", "age of the longest call in flight that copies or fills memory"),
    ("alloc_open_seconds", "age of the longest call in flight that allocates or frees"),
)
WAIT_COLUMNS = (
    *(Column(name, (*_RUNNING, STAGE), "", "calls", help) for name, help in _OF_WAITS),
    *(Column(name, (PROCESS, STAGE), "s", "calls", help) for name, help in _OF_OPEN_CALLS),
    Column(
        "longest_call_seconds",
        (PROCESS,),
        "s",
        "calls",
        "age of the call that it sits in longest; none: in none",
    ),
)
"""Where threads wait inside of calls: the means count a call once it has returned, ages while it is open."""

_OF_DRIVERS = (
    ("queue_submit_rate", (HOST,), "1/s", "work handed to a GPU, by its driver's event or by launch calls"),
    ("fences_open", (HOST,), "", "fences that drivers emitted and that have not signaled"),
    ("fence_oldest_open_seconds", (HOST,), "s", "age of the oldest of them; none: no such fence"),
    (
        "fence_latency_seconds",
        (HOST,),
        "s",
        "emitted to signaled in the last second, of the slowest timeline",
    ),
    ("fence_wait_threads", (HOST, PROCESS), "", "threads that waited for a fence in the kernel, on average"),
    ("driver_memory_bytes", (HOST, PROCESS), "bytes", "GPU memory as the driver's tracepoint told last"),
    ("gpu_ioctl_rate", (HOST,), "1/s", "ioctls of GPU devices; with [probes] gpu_ioctls"),
    ("gpu_ioctl_slow_rate", (HOST,), "1/s", "of them, those that took [probes] slow_call_seconds or longer"),
    ("gpu_ioctl_threads", (HOST,), "", "threads inside such an ioctl, on average; counted at its return"),
    ("gpu_ioctl_slowest_class_seconds", (HOST,), "s", "mean of the last second, of the slowest class"),
)
DRIVER_COLUMNS = tuple(
    Column(name, entities, unit, "driver", help) for name, entities, unit, help in _OF_DRIVERS
)
"""What tracepoints of GPU drivers say; of several timelines, rings or classes the worst or the sum."""

COLUMNS: tuple[Column, ...] = (
    Column("request_rate", _SERVED, "1/s", "requests", "requests that began, over the last 10 s"),
    Column(
        "requests_ended",
        (*_SERVED, STAGE),
        "",
        "requests",
        "ended since the agent began (stage: ended stages)",
    ),
    Column(
        "endpoint_heat",
        (ENDPOINT, INSTANCE, ROUTE),
        "1/s",
        "requests",
        "request rate × the endpoint's weight, × what `[frame] heat_weight` says",
    ),
    Column(
        "token_equivalent_latency_seconds",
        _SERVED,
        "s",
        "requests",
        "Σ latency ÷ Σ token equivalents of those of the last 60 s that said their tokens",
    ),
    Column(
        "slo_penalty_seconds",
        (ENDPOINT,),
        "s",
        "requests",
        "largest of its classes: weight × max(0, p99 − baseline); looked at every 5 s",
    ),
    Column("inflight", (*_SERVED, STAGE), "", "requests", "requests in flight (stage: open stages)"),
    Column("open_requests", (PROCESS,), "", "requests", "requests in flight that the process began"),
    Column("oldest_age_seconds", (*_SERVED, STAGE), "s", "requests", "age of the oldest one in flight"),
    Column(
        "latency_p50_seconds",
        (*_SERVED, STAGE),
        "s",
        "requests",
        "median of those that ended in the last 60 s",
    ),
    Column("latency_p95_seconds", (*_SERVED, STAGE), "s", "requests", "nearest-rank p95 over the last 60 s"),
    Column("latency_p99_seconds", (*_SERVED, STAGE), "s", "requests", "nearest-rank p99 over the last 60 s"),
    Column("latency_samples", (*_SERVED, STAGE), "", "requests", "how many ended in the last 60 s"),
    Column(
        "error_ratio",
        _SERVED,
        "ratio",
        "requests",
        "of the last 60 s, those that ended with an error or vanished",
    ),
    Column("stage_rate", (STAGE,), "1/s", "requests", "stages that ended, over the last 10 s"),
    Column(
        "token_rate",
        (HOST, INSTANCE),
        "1/s",
        "requests",
        "output tokens of ended requests, over the last 10 s",
    ),
    Column("call_rate", (*_RUNNING, STAGE), "1/s", "calls", "CUDA, NCCL and cuDNN calls"),
    Column("launch_rate", (*_RUNNING, STAGE), "1/s", "calls", "launch-class calls"),
    Column("graph_launch_rate", (*_RUNNING, STAGE), "1/s", "calls", "launches of graphs that ran"),
    Column(
        "graph_kernel_rate",
        (*_RUNNING, STAGE),
        "1/s",
        "calls",
        "kernels that launches of graphs replayed; unknown while one is launched of nobody knows how many",
    ),
    Column("call_error_rate", _RUNNING, "1/s", "calls", "calls that returned an error"),
    Column("allocation_failure_rate", _RUNNING, "1/s", "calls", "calls that returned out of memory"),
    Column(
        "unattributed_ratio", _RUNNING, "ratio", "calls", "launch-class calls without a stage ÷ all of them"
    ),
    Column(
        "dispatch_deviation",
        (INSTANCE,),
        "",
        "requests",
        "log2(load share ÷ heat share); 0 = as hot as loaded",
    ),
    Column("cpu_load_ratio", (HOST, INSTANCE, PROCESS, ROUTE), "ratio", "host", "CPU used ÷ CPU it may use"),
    Column(
        "memory_load_ratio",
        (HOST, INSTANCE, PROCESS, ROUTE),
        "ratio",
        "host",
        "memory used ÷ memory it may use",
    ),
    Column("load_ratio", (HOST, INSTANCE, PROCESS, ROUTE), "ratio", "host", "mean of CPU and memory load"),
    Column("resident_bytes", (INSTANCE, PROCESS), "bytes", "host", "resident memory"),
    Column("loss_rate", (HOST,), "1/s", "requests", "losses counted by the kernel side"),
    Column("gpu_count", (HOST,), "", "devices", "GPUs that NVML lists"),
    Column(
        "gpu_utilisation_ratio",
        (GPU,),
        "ratio",
        "devices",
        "share of time with a kernel running (duty cycle)",
    ),
    Column("gpu_memory_used_bytes", (GPU,), "bytes", "devices", "device memory in use"),
    Column("gpu_memory_total_bytes", (GPU,), "bytes", "devices", "device memory"),
    Column("gpu_memory_used_ratio", (GPU,), "ratio", "devices", "device memory in use ÷ device memory"),
    Column(
        "gpu_memory_busy_ratio",
        (GPU,),
        "ratio",
        "devices",
        "share of time memory was accessed; not bandwidth",
    ),
    Column("gpu_power_watts", (GPU,), "W", "devices", "power draw"),
    Column("gpu_temperature_celsius", (GPU,), "°C", "devices", "core temperature"),
    Column("gpu_sm_clock_hertz", (GPU,), "Hz", "devices", "SM clock"),
    Column("gpu_hardware_slowdown", (GPU,), "", "devices", "1 while a hardware slowdown reason is active"),
    Column("gpu_lost", (GPU,), "", "devices", "1 when the driver says that the GPU is lost"),
    Column("gpu_sample_age_seconds", (GPU,), "s", "devices", "age of the last NVML sample"),
    Column("nvml_call_seconds", (GPU,), "s", "devices", "slowest NVML call of the last second"),
    *WAIT_COLUMNS,
    *ENGINE_COLUMNS,
    *TOKEN_COLUMNS,
    *MEMORY_COLUMNS,
    *SCHEDULING_COLUMNS,
    *PRESSURE_COLUMNS,
    *DRIVER_COLUMNS,
)

COLUMN_INDEX: dict[str, int] = {column.name: index for index, column in enumerate(COLUMNS)}
"""Column name → its place in `Frame.values`."""


def columns_of(kind: EntityKind) -> tuple[Column, ...]:
    """The columns that say something about this kind of entity."""
    return tuple(column for column in COLUMNS if kind in column.entities)
