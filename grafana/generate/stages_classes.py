# SPDX-License-Identifier: Apache-2.0
"""The row of the dashboard Stages about request classes: what they get, what they cost, what they miss."""

from __future__ import annotations

from generate.board import Row
from generate.panels import Panel, Target
from generate.promql import DASHBOARD, highest, total
from hotstage.sinks import class_metrics as metrics
from hotstage.sinks.metric import Metric

_CLASS = "{{request_class}}"
_WHOLE = 'size="all"'
_WINDOW = "over the requests that ended in the last 60 s"


def _of_class(metric: Metric, *matchers: str) -> str:
    """The worst host's."""
    return highest(DASHBOARD.select(metric, *matchers), "request_class")


CLASSES = Row(
    "Request classes",
    (
        Panel(
            "Requests by class",
            "Requests that ended, per second, by modality fingerprint: what a request brought besides text.",
            "timeseries",
            "reqps",
            (Target(total(DASHBOARD.rate(metrics.REQUESTS), "request_class"), _CLASS),),
            stacked=True,
        ),
        Panel(
            "P99 by class, and its target",
            f"Nearest rank {_WINDOW}, unknown below 20, the slowest host; the target is the class's p99 by "
            "[classes] target_seconds.",
            "timeseries",
            "s",
            (
                Target(_of_class(metrics.P99, _WHOLE), f"{_CLASS} P99"),
                Target(_of_class(metrics.TARGET), f"{_CLASS} target"),
            ),
        ),
        Panel(
            "Within the target",
            f"Share within the class's target, {_WINDOW}, the worst host. From 0.99 on, the p99 is there.",
            "timeseries",
            "percentunit",
            (
                Target(
                    f"min by (request_class) ({DASHBOARD.select(metrics.WITHIN)})",
                    _CLASS,
                ),
            ),
            highest=1.0,
        ),
        Panel(
            "Token-equivalent latency by class",
            f"Seconds per token equivalent: latency over weighted tokens of all modalities, output included, "
            f"{_WINDOW}. What makes requests of different kinds comparable.",
            "timeseries",
            "s",
            (Target(_of_class(metrics.TOKEN_LATENCY), _CLASS),),
        ),
        Panel(
            "Token-equivalent latency by endpoint",
            "The same by endpoint, whatever stages its requests go through: where a token is dear.",
            "timeseries",
            "s",
            (Target(highest(DASHBOARD.select(metrics.ENDPOINT_TOKEN_LATENCY), "endpoint"), "{{endpoint}}"),),
            links_to_explorer=True,
        ),
        Panel(
            "SLO penalty by endpoint and class",
            "Weight × what the p99 is above its baseline, in seconds; 0 is within it, unknown below 20 "
            "requests. Slow videos weigh ten times what slow texts do.",
            "timeseries",
            "s",
            (
                Target(
                    highest(DASHBOARD.select(metrics.ENDPOINT_PENALTY), "endpoint", "request_class"),
                    f"{{{{endpoint}}}} {_CLASS}",
                ),
            ),
            links_to_explorer=True,
        ),
        Panel(
            "Classes by size",
            f"Mean, P95 and P99 of each class and size of input, {_WINDOW}, the slowest host; `all` is all "
            "sizes together.",
            "table",
            "s",
            (
                Target(highest(DASHBOARD.select(metrics.MEAN), "request_class", "size"), ""),
                Target(highest(DASHBOARD.select(metrics.P95), "request_class", "size"), ""),
                Target(highest(DASHBOARD.select(metrics.P99), "request_class", "size"), ""),
            ),
            width=16,
            column_names={
                "request_class": "class",
                "Value #A": "mean",
                "Value #B": "P95",
                "Value #C": "P99",
            },
        ),
        Panel(
            "Penalty by class",
            "The same by class alone, over all its endpoints, the worst host.",
            "timeseries",
            "s",
            (Target(_of_class(metrics.PENALTY), _CLASS),),
        ),
    ),
)
