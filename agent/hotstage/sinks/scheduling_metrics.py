# SPDX-License-Identifier: Apache-2.0
"""Metrics of threads in the GPU path and the CPU. A part of `metrics.py`."""

from __future__ import annotations

from hotstage.sinks.metric import Metric

WAIT_EDGES = tuple(2.0**power for power in range(-12, 0, 2))
"""Seconds, 0.24 ms to 250 ms, in steps of four; a scheduler's slice is some milliseconds."""

RUN_QUEUE_WAIT = Metric(
    "hotstage_run_queue_wait_seconds",
    "histogram",
    ("stage",),
    "Single waits for a CPU of threads in the GPU path, after a sleep or after being taken off it.",
    cap=13,
    edges=WAIT_EDGES,
)
OFF_CPU = Metric(
    "hotstage_stage_off_cpu_seconds_total",
    "counter",
    ("stage", "state"),
    "Time that threads of the stage were off the CPU, of times that have ended: asleep, asleep in a call, "
    "woken and waiting, preempted and waiting; reclaiming is time on it.",
    cap=72,
)
SWITCHES = Metric(
    "hotstage_stage_switches_total",
    "counter",
    ("stage", "kind"),
    "Times off the CPU that have ended; kind is voluntary or involuntary.",
    cap=30,
    counts="switch",
)

PAGE_FAULTS = Metric(
    "hotstage_stage_page_faults_total",
    "counter",
    ("stage",),
    "Page faults of user instructions of threads of the stage; only where [probes] page_faults counts them.",
    cap=15,
    counts="page fault",
)

SCHEDULING_METRICS: tuple[Metric, ...] = (RUN_QUEUE_WAIT, OFF_CPU, SWITCHES, PAGE_FAULTS)
