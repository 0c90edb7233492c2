# SPDX-License-Identifier: Apache-2.0
"""The table of first and further tokens → children of their metrics; what is unknown has no series."""

from __future__ import annotations

from collections import defaultdict

from hotstage.frame.latency_types import Latency
from hotstage.sinks import token_metrics as metrics
from hotstage.sinks.metric import Metric

Children = list[tuple[tuple[str, ...], float]]

_QUANTILES = {
    metrics.TTFT_P50: "ttft_p50_seconds",
    metrics.TTFT_P95: "ttft_p95_seconds",
    metrics.ITL_P50: "itl_p50_seconds",
    metrics.ITL_P95: "itl_p95_seconds",
}


def token_children(latency: Latency) -> dict[Metric, Children]:
    """Parts largest first, so that a cap leaves out what decides least."""
    children: dict[Metric, Children] = {metric: [] for metric in metrics.TOKEN_METRICS}
    parts: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for each in latency.modalities:
        for metric, field in _QUANTILES.items():
            value = getattr(each, field)
            if value is not None:
                children[metric].append(((each.modality,), value))
        if each.ttft_mean_seconds is not None:
            mean = each.ttft_mean_seconds
            for part in each.parts:
                # A server's queue and the wait before a stage have one name: one series.
                parts[each.modality, part.name] += part.share * mean
    children[metrics.TTFT_PART] = sorted(parts.items(), key=lambda child: -child[1])
    return children
