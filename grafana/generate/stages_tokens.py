# SPDX-License-Identifier: Apache-2.0
"""The row of the dashboard Stages about tokens: when the first one comes, and what makes it late."""

from __future__ import annotations

from generate.board import Row
from generate.panels import Panel, Target
from generate.promql import DASHBOARD, highest
from hotstage.sinks import token_metrics as metrics
from hotstage.sinks.metric import Metric

_MODALITY = 'modality=~"$modality"'
_WINDOW = "of the requests that ended in the last 60 s, unknown below 20, the slowest host"


def _quantiles(*named: tuple[Metric, str]) -> tuple[Target, ...]:
    return tuple(
        Target(highest(DASHBOARD.select(metric, _MODALITY), "modality"), f"{{{{modality}}}} {name}")
        for metric, name in named
    )


TOKENS = Row(
    "First token",
    (
        Panel(
            "Time to first token by modality",
            f"Begin of a request to its first token: median and P95, nearest rank {_WINDOW}.",
            "timeseries",
            "s",
            _quantiles((metrics.TTFT_P95, "P95"), (metrics.TTFT_P50, "P50")),
        ),
        Panel(
            "What makes the first token late",
            "What each stage and wait decided of the time to first token, mean over the requests of the last "
            "60 s. The parts of a modality add up to its mean: choose one modality above to read the stack.",
            "timeseries",
            "s",
            (
                Target(
                    f"avg by (modality, part) ({DASHBOARD.select(metrics.TTFT_PART, _MODALITY)})",
                    "{{modality}} {{part}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Time between tokens by modality",
            f"Decode of a request over the tokens it made: median and P95, nearest rank {_WINDOW}.",
            "timeseries",
            "s",
            _quantiles((metrics.ITL_P95, "P95"), (metrics.ITL_P50, "P50")),
        ),
    ),
)
