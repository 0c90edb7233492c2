# SPDX-License-Identifier: Apache-2.0
"""Metrics of the kernel's tracepoints of GPU drivers. A part of `metrics.py`."""

from __future__ import annotations

from hotstage.sinks.metric import Metric

_TIMELINE = ("driver", "timeline")
_IOCTL = ("device", "ioctl_class")

EVENTS = Metric(
    "hotstage_driver_events_total",
    "counter",
    ("event",),
    "Times that a tracepoint fired; one that is absent on this host has no series.",
    cap=16,
    counts="event",
)
QUEUE_SUBMITS = Metric(
    "hotstage_driver_queue_submits_total",
    "counter",
    ("source",),
    "Work handed to a GPU, by what tells it: a driver's tracepoint, or cuLaunch* where there is none.",
    cap=3,
    counts="submit",
)
RING_JOBS = Metric(
    "hotstage_driver_ring_jobs_total",
    "counter",
    ("ring",),
    "Jobs handed to a ring of a GPU, where the driver's tracepoint names it.",
    cap=5,
    counts="job",
)
FENCES = Metric(
    "hotstage_driver_fences_total",
    "counter",
    _TIMELINE,
    "Fences that signaled and whose emission was seen.",
    cap=8,
    counts="fence",
)
FENCE_SECONDS = Metric(
    "hotstage_driver_fence_seconds_total",
    "counter",
    _TIMELINE,
    "Time from emission to signal of these fences.",
    cap=8,
)
FENCES_OPEN = Metric(
    "hotstage_driver_fences_open",
    "gauge",
    _TIMELINE,
    "Fences that were emitted and have not signaled.",
    cap=8,
    counts="fence",
)
FENCE_OLDEST = Metric(
    "hotstage_driver_fence_oldest_open_seconds", "gauge", (), "Age of the oldest of them; absent without one."
)
FENCE_WAITS = Metric(
    "hotstage_driver_fence_wait_seconds_total",
    "counter",
    (),
    "Time that processes waited for fences in the kernel.",
)
MEMORY = Metric(
    "hotstage_driver_memory_bytes",
    "gauge",
    ("gpu",),
    "Memory of a GPU as its driver's tracepoint told last.",
    cap=8,
)
OOM_KILLS = Metric(
    "hotstage_driver_oom_kills_total",
    "counter",
    ("process",),
    "Processes that the kernel chose to kill for memory: `gpu` used one as far as is known, `other` did not.",
    cap=2,
    counts="process",
)
IOCTLS = Metric(
    "hotstage_driver_ioctls_total",
    "counter",
    _IOCTL,
    "Ioctls of GPU devices that returned; only where [probes] gpu_ioctls is on.",
    cap=10,
    counts="call",
)
IOCTL_SECONDS = Metric(
    "hotstage_driver_ioctl_seconds_total", "counter", _IOCTL, "Time that these ioctls took.", cap=10
)
IOCTLS_SLOW = Metric(
    "hotstage_driver_ioctls_slow_total",
    "counter",
    (),
    "Of them, those that took [probes] slow_call_seconds or longer.",
    counts="call",
)

DRIVER_METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
