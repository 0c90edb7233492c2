# SPDX-License-Identifier: Apache-2.0
"""The dashboard Overview: is the host healthy, what is hot, what has happened, and can hotstage be "
"believed."""

from __future__ import annotations

from generate.board import ENDPOINT, GPU, Board, Row
from generate.overview_agent import AGENT_ROWS
from generate.overview_driver import DRIVER
from generate.overview_events import EVENTS, GPUS
from generate.overview_memory import MEMORY
from generate.panels import ORANGE, RED, YELLOW, Panel, Target
from generate.promql import DASHBOARD, highest, total
from hotstage.sinks import metrics, self_metrics

UID = "hotstage-overview"

_ENDPOINT = 'endpoint=~"$endpoint"'
_UP = f"sum({DASHBOARD.select(self_metrics.UP)})"
_REQUESTS = DASHBOARD.rate(metrics.ENDPOINT_REQUESTS, _ENDPOINT)
_FAILED = DASHBOARD.rate(metrics.ENDPOINT_REQUESTS, _ENDPOINT, 'outcome=~"error|lost"')
_FAILED_BY_ENDPOINT = (
    f"({total(_FAILED, 'endpoint')} or 0 * {total(_REQUESTS, 'endpoint')}) / {total(_REQUESTS, 'endpoint')}"
)
_NOT_CLOSED = DASHBOARD.select(metrics.BREAKER_STATE, 'state=~"open|half_open|forced_open"')


def _or_zero_while_up(expression: str) -> str:
    """0 where an agent answers and has none; nothing where no agent answers."""
    return f"{expression} or 0 * {_UP}"


HEALTH = Row(
    "Is it healthy",
    (
        Panel(
            "Agents",
            "Agents that answer their scrape, and those that do not. Everything else here is only as good "
            "as this.",
            "stat",
            "short",
            (
                Target('sum(up{job=~"$job",instance=~"$instance"})', "up"),
                Target('sum(1 - up{job=~"$job",instance=~"$instance"})', "down"),
            ),
            width=4,
            height=4,
        ),
        Panel(
            "Windows open",
            "Anomaly windows that are open now, of every kind. Zero is measured; no data means that no "
            "agent answers.",
            "stat",
            "short",
            (
                Target(
                    _or_zero_while_up(f"sum({DASHBOARD.select(metrics.WINDOW_ACTIVE)})"),
                    "open",
                ),
            ),
            width=4,
            height=4,
            limits=((1, RED),),
        ),
        Panel(
            "Breakers open",
            "Breakers that are open, half-open or forced open, in dry run or not.",
            "stat",
            "short",
            (
                Target(
                    _or_zero_while_up(f"sum({_NOT_CLOSED})"),
                    "not closed",
                ),
            ),
            width=4,
            height=4,
            limits=((1, ORANGE),),
        ),
        Panel(
            "Failed requests",
            "Share of the requests that ended with an error, or with their process. No data while none ends.",
            "stat",
            "percentunit",
            (Target(f"({total(_FAILED)} or 0 * {total(_REQUESTS)}) / {total(_REQUESTS)}", "failed"),),
            width=4,
            height=4,
            limits=((0.01, YELLOW), (0.05, RED)),
        ),
        Panel(
            "Slowest P95",
            "The highest P95 of any endpoint over the last 60 s; unknown below 20 requests.",
            "stat",
            "s",
            (Target(highest(DASHBOARD.select(metrics.ENDPOINT_P95, _ENDPOINT)), "P95"),),
            width=4,
            height=4,
        ),
        Panel(
            "Unattributed launches",
            "Launches without a stage, the worst host. Figures by stage leave these out: marks or rules are "
            "missing.",
            "stat",
            "percentunit",
            (Target(highest(DASHBOARD.select(metrics.UNATTRIBUTED)), "without a stage"),),
            width=4,
            height=4,
            limits=((0.2, YELLOW), (0.5, RED)),
        ),
    ),
)

TRAFFIC = Row(
    "Heat, latency, load",
    (
        Panel(
            "Heat by endpoint",
            "Requests per second times the endpoint's weight, over all hosts chosen: what the pipeline is "
            "asked to do.",
            "timeseries",
            "reqps",
            (
                Target(
                    total(DASHBOARD.select(metrics.ENDPOINT_HEAT, _ENDPOINT), "endpoint", "modality"),
                    "{{endpoint}} ({{modality}})",
                ),
            ),
            stacked=True,
            links_to_explorer=True,
        ),
        Panel(
            "P95 by endpoint",
            "Nearest-rank P95 of the requests that ended in the last 60 s, the worst host. A gap: fewer "
            "than 20 ended.",
            "timeseries",
            "s",
            (
                Target(
                    highest(DASHBOARD.select(metrics.ENDPOINT_P95, _ENDPOINT), "endpoint", "modality"),
                    "{{endpoint}} ({{modality}})",
                ),
            ),
            links_to_explorer=True,
        ),
        Panel(
            "Load by instance",
            "Mean of the CPU and memory load of each server instance, against what its limits allow it.",
            "timeseries",
            "percentunit",
            (
                Target(
                    highest(DASHBOARD.select(metrics.INSTANCE_LOAD), "instance", "instance_id"),
                    "{{instance_id}} on {{instance}}",
                ),
            ),
            limits=((0.85, RED),),
            highest=1,
        ),
        Panel(
            "Heat by endpoint and instance",
            "Where the heat lands: the same figures as the X axis of the explorer's page Heat.",
            "timeseries",
            "reqps",
            (
                Target(
                    DASHBOARD.select(metrics.ROUTE_HEAT, _ENDPOINT),
                    "{{endpoint}} {{instance_id}} on {{instance}}",
                ),
            ),
            links_to_explorer=True,
        ),
        Panel(
            "P95 by endpoint and instance",
            "One instance slower than its peers at the same endpoint is the instance's fault, not the "
            "model's.",
            "timeseries",
            "s",
            (
                Target(
                    DASHBOARD.select(metrics.ROUTE_P95, _ENDPOINT),
                    "{{endpoint}} {{instance_id}} on {{instance}}",
                ),
            ),
            links_to_explorer=True,
        ),
        Panel(
            "CPU and memory load",
            "The two halves of the load. CPU near 1 starves launches; memory near 1 ends with an OOM kill.",
            "timeseries",
            "percentunit",
            (
                Target(DASHBOARD.select(metrics.INSTANCE_CPU), "CPU {{instance_id}} on {{instance}}"),
                Target(DASHBOARD.select(metrics.INSTANCE_MEMORY), "memory {{instance_id}} on {{instance}}"),
            ),
            highest=1,
        ),
        Panel(
            "Requests by outcome",
            "Requests that ended, per second. `lost` went with their process, `refused` never began.",
            "timeseries",
            "reqps",
            (Target(total(_REQUESTS, "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Failed requests by endpoint",
            "Errors and losses over all that ended. Zero is drawn where requests ended and none failed.",
            "timeseries",
            "percentunit",
            (Target(_FAILED_BY_ENDPOINT, "{{endpoint}}"),),
            limits=((0.05, RED),),
            links_to_explorer=True,
        ),
        Panel(
            "Dispatch deviation",
            "log2 of load share over heat share. +1: an instance carries twice the load that its traffic "
            "explains.",
            "timeseries",
            "short",
            (Target(DASHBOARD.select(metrics.INSTANCE_DEVIATION), "{{instance_id}} on {{instance}}"),),
        ),
    ),
)

OVERVIEW = Board(
    UID,
    "hotstage / Overview",
    "Is the host healthy, which endpoint is hot or slow on which instance, what has hotstage found, can it "
    "be believed.",
    (HEALTH, TRAFFIC, EVENTS, GPUS, MEMORY, DRIVER, *AGENT_ROWS),
    variables=(ENDPOINT, GPU),
)
