# SPDX-License-Identifier: Apache-2.0
"""Metrics of the memory ledger. A part of `metrics.py`."""

from __future__ import annotations

from hotstage.sinks.metric import Metric

LIVE = Metric(
    "hotstage_memory_live_bytes",
    "gauge",
    ("gpu_uuid", "kind"),
    "Memory allocated and not freed, as the calls asked for it; absent where one was watched late.",
    cap=28,
)
PINNED = Metric("hotstage_memory_pinned_bytes", "gauge", (), "Page-locked memory of the host.")
STAGE_LIVE = Metric(
    "hotstage_memory_stage_live_bytes",
    "gauge",
    ("stage", "modality"),
    "Memory for GPUs allocated and not freed, by the stage that allocated it.",
    cap=13,
)
STAGE_HIGH = Metric(
    "hotstage_memory_stage_high_bytes",
    "gauge",
    ("stage", "modality"),
    "The most of it that there was at once; the sum over processes.",
    cap=13,
)
OLDEST = Metric(
    "hotstage_memory_oldest_age_seconds",
    "gauge",
    ("gpu_uuid",),
    "Age of the oldest live allocation on the GPU.",
    cap=8,
)
FRAGMENTATION = Metric(
    "hotstage_memory_fragmentation_ratio",
    "gauge",
    ("gpu_uuid", "basis"),
    "Share of the free memory that serves no large allocation; basis is torch, pool, ledger or inferred.",
    cap=8,
)
FAILED_FITTING = Metric(
    "hotstage_memory_failed_fitting",
    "gauge",
    ("gpu_uuid",),
    "Allocations of the last minute that failed though as much was free.",
    cap=8,
    counts="call",
)
ENDED = Metric(
    "hotstage_memory_freed_at_exit_bytes_total",
    "counter",
    (),
    "Memory for GPUs that processes had when they ended.",
)

CONFLICTS = Metric(
    "hotstage_memory_conflict_allocations_total",
    "counter",
    ("outcome",),
    "Large allocations judged against the tokens in flight: told, held_back, lost, fits, stale, unknown.",
    cap=6,
    counts="call",
)

MEMORY_METRICS: tuple[Metric, ...] = (
    LIVE,
    PINNED,
    STAGE_LIVE,
    STAGE_HIGH,
    OLDEST,
    FRAGMENTATION,
    FAILED_FITTING,
    ENDED,
    CONFLICTS,
)
