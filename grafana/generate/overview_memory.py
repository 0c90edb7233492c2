# SPDX-License-Identifier: Apache-2.0
"""The overview's row on memory of GPUs, by the ledger of allocations: whose it is, how fragmented."""

from __future__ import annotations

from generate.board import Row
from generate.panels import Panel, Target
from generate.promql import DASHBOARD, highest, total
from hotstage.sinks import memory_metrics as metrics

_GPU = 'gpu_uuid=~"$gpu"'

MEMORY = Row(
    "GPU memory",
    (
        Panel(
            "Allocated by kind",
            "What processes allocated and did not free, as they asked for it. `mapped` is `physical` memory "
            "by its address. No line: a process of that GPU was watched late, or asked for too much.",
            "timeseries",
            "bytes",
            (
                Target(
                    total(DASHBOARD.select(metrics.LIVE, _GPU), "gpu_uuid", "kind"),
                    "{{kind}} on {{gpu_uuid}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Allocated by stage",
            "Memory for GPUs by the stage that allocated it, and the most that it had at once.",
            "timeseries",
            "bytes",
            (
                Target(
                    total(DASHBOARD.select(metrics.STAGE_LIVE), "stage", "modality"), "{{stage}} {{modality}}"
                ),
                Target(
                    total(DASHBOARD.select(metrics.STAGE_HIGH), "stage", "modality"),
                    "highest of {{stage}} {{modality}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Fragmentation by its basis",
            "Free memory that cannot serve one large allocation. Exact by `torch`; `pool` is slack; `ledger` "
            "counts pages that are in use in part; `inferred` is a lower bound from allocations that failed.",
            "timeseries",
            "percentunit",
            (
                Target(
                    highest(DASHBOARD.select(metrics.FRAGMENTATION, _GPU), "gpu_uuid", "basis"),
                    "{{gpu_uuid}} by {{basis}}",
                ),
            ),
        ),
        Panel(
            "Allocations that failed though as much was free",
            "Of the last minute. Above 0: free memory is in pieces, and restarting the process would help.",
            "timeseries",
            "short",
            (Target(highest(DASHBOARD.select(metrics.FAILED_FITTING, _GPU), "gpu_uuid"), "{{gpu_uuid}}"),),
        ),
        Panel(
            "Oldest allocation",
            "Weights are as old as their server. What grows beside them, and was meant for a request, leaks.",
            "timeseries",
            "s",
            (Target(highest(DASHBOARD.select(metrics.OLDEST, _GPU), "gpu_uuid"), "{{gpu_uuid}}"),),
        ),
        Panel(
            "Page-locked memory of the host",
            "Buffers for copies; the host cannot swap it out.",
            "timeseries",
            "bytes",
            (
                Target(total(DASHBOARD.select(metrics.PINNED), "instance"), "{{instance}}"),
                Target(
                    total(DASHBOARD.rate(metrics.ENDED), "instance"),
                    "freed at exit, per second, on {{instance}}",
                ),
            ),
        ),
        Panel(
            "Large allocations against tokens in flight",
            "How many were judged, and what came of it: `told` and `held_back` are conflicts, `fits` is room "
            "or few tokens, `stale` and `unknown` are no verdict.",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(metrics.CONFLICTS), "outcome"), "{{outcome}}"),),
            width=16,
        ),
    ),
)
