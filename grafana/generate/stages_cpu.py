# SPDX-License-Identifier: Apache-2.0
"""The row of the dashboard Stages on threads in the GPU path and the CPU."""

from __future__ import annotations

from generate.board import Row
from generate.panels import Panel, Target
from generate.promql import DASHBOARD, total
from hotstage.sinks import pressure_metrics as pressure
from hotstage.sinks import scheduling_metrics as metrics

PAGE_FAULTS = "[probes] page_faults"
_STAGE = 'stage=~"$stage"'
_STATE = total(DASHBOARD.rate(metrics.OFF_CPU, _STAGE, 'state=~"woken|preempted"'), "stage", "state")

CPU = Row(
    "CPU",
    (
        Panel(
            "Threads that wait for a CPU",
            "Threads in the GPU path that could run and do not, on average: woken and not yet running, or "
            "taken off the CPU. A GPU that idles while this is above 0 is starved by its host.",
            "timeseries",
            "short",
            (Target(_STATE, "{{stage}} {{state}}"),),
            width=12,
            stacked=True,
        ),
        Panel(
            "P95 of a wait for a CPU",
            "Of single waits, by stage: at most a factor of four off, as the buckets are.",
            "timeseries",
            "s",
            (
                Target(
                    DASHBOARD.quantile(0.95, metrics.RUN_QUEUE_WAIT, _STAGE, by=("stage",)),
                    "{{stage}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Switches by kind",
            "Times off the CPU that ended, per second: voluntary (it waited for something), or involuntary "
            "(something else was to run, or its quota was used up).",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(metrics.SWITCHES, _STAGE), "kind"), "{{kind}}"),),
        ),
        Panel(
            "Asleep inside calls",
            "Threads that sleep inside a timed CUDA, NCCL or cuDNN call, on average. Where calls wait longer "
            "than this says, they spin and use the CPU.",
            "timeseries",
            "short",
            (
                Target(
                    total(DASHBOARD.rate(metrics.OFF_CPU, _STAGE, 'state="asleep_in_call"'), "stage"),
                    "{{stage}}",
                ),
            ),
        ),
        Panel(
            "Reclaim of memory",
            "Threads that look for free memory themselves, of the host or of their cgroup, on average: 0 on "
            "a healthy host. No line: none ever did.",
            "timeseries",
            "short",
            (
                Target(
                    total(DASHBOARD.rate(metrics.OFF_CPU, _STAGE, 'state="reclaiming"'), "stage"),
                    "{{stage}}",
                ),
            ),
        ),
        Panel(
            "Page faults by stage",
            "Of user instructions, per second. Only with `[probes] page_faults`: every fault of the host "
            "pays for it.",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(metrics.PAGE_FAULTS, _STAGE), "stage"), "{{stage}}"),),
            needs=PAGE_FAULTS,
        ),
    ),
)

_NO_PSI = "No line: the kernel does not tell (it wants psi=1, or was built without it)."

HOST = Row(
    "Host and cgroups",
    (
        Panel(
            "Pressure on the host",
            "Share of the time in which some or all tasks stood still for a CPU, for memory or for a disk. "
            + _NO_PSI,
            "timeseries",
            "percentunit",
            (Target(DASHBOARD.select(pressure.HOST_STALL), "{{resource}} {{tasks}} on {{instance}}"),),
            width=12,
        ),
        Panel(
            "Pressure on servers",
            "The same of the cgroup that a server runs in: some of its tasks stood still. " + _NO_PSI,
            "timeseries",
            "percentunit",
            (Target(DASHBOARD.select(pressure.INSTANCE_STALL), "{{instance_id}} {{resource}}"),),
            width=12,
        ),
        Panel(
            "CPU quota used up",
            "Share of the quota's periods in which a server used it up and had to wait for the next one. Any "
            "of it is time added to requests. No line: no quota.",
            "timeseries",
            "percentunit",
            (Target(DASHBOARD.select(pressure.INSTANCE_THROTTLED), "{{instance_id}}"),),
        ),
        Panel(
            "Memory limits met",
            "How often a server's cgroup was slowed down (high), met its limit (max), had none left (oom), "
            "and how many were killed for it (oom_kill), since it was made.",
            "timeseries",
            "short",
            (Target(DASHBOARD.select(pressure.INSTANCE_MEMORY_EVENTS), "{{instance_id}} {{event}}"),),
        ),
        Panel(
            "Page faults",
            "Per second: major ones waited for a disk; minor ones grow with memory that is used for the "
            "first time.",
            "timeseries",
            "cps",
            (Target(DASHBOARD.select(pressure.INSTANCE_FAULTS), "{{instance_id}} {{kind}}"),),
        ),
    ),
)
