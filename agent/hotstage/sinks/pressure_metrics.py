# SPDX-License-Identifier: Apache-2.0
"""Metrics of pressure, throttling and memory of the host and of instances. A part of `metrics.py`."""

from __future__ import annotations

from hotstage.sinks.metric import Metric

HOST_STALL = Metric(
    "hotstage_host_stall_ratio",
    "gauge",
    ("resource", "tasks"),
    "Share of the last second in which some or all tasks stood still for a resource; absent without PSI.",
    cap=6,
)
INSTANCE_STALL = Metric(
    "hotstage_instance_stall_ratio",
    "gauge",
    ("instance_id", "resource"),
    "Share of the last second in which a task of the instance's cgroup stood still for cpu, memory or io.",
    cap=42,
)
INSTANCE_THROTTLED = Metric(
    "hotstage_instance_cpu_throttled_ratio",
    "gauge",
    ("instance_id",),
    "Periods of the CPU quota in which the instance's cgroup used it up, over all of them.",
    cap=14,
)
INSTANCE_MEMORY_EVENTS = Metric(
    "hotstage_instance_memory_events",
    "gauge",
    ("instance_id", "event"),
    "How often the instance's cgroup met a limit of memory since it was made: high, max, oom, oom_kill.",
    cap=28,
    counts="event",
)
INSTANCE_FAULTS = Metric(
    "hotstage_instance_page_fault_rate",
    "gauge",
    ("instance_id", "kind"),
    "Page faults a second; minor found the page in memory, major waited for a disk.",
    cap=28,
)

PRESSURE_METRICS: tuple[Metric, ...] = (
    HOST_STALL,
    INSTANCE_STALL,
    INSTANCE_THROTTLED,
    INSTANCE_MEMORY_EVENTS,
    INSTANCE_FAULTS,
)
