# SPDX-License-Identifier: Apache-2.0
"""Recording rules: heat, latency, load, errors by endpoint and stage, over a fleet: level:metric:operation.

`level` names the labels that are left; `modality` comes with an endpoint or a stage. No dashboard needs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from generate.promql import RULE, highest, total
from hotstage.sinks import metrics


@dataclass(frozen=True, slots=True)
class Recording:
    """One rule, and what a reader uses it for."""

    name: str
    expression: str
    purpose: str


_REQUESTS = RULE.rate(metrics.ENDPOINT_REQUESTS)
_FAILED = RULE.rate(metrics.ENDPOINT_REQUESTS, 'outcome=~"error|lost"')
_BY_ENDPOINT = ("job", "endpoint", "modality")
_BY_ROUTE = ("job", "instance", "endpoint", "modality")
_BY_STAGE = ("job", "stage", "modality")

REQUESTS = Recording(
    "job_endpoint:hotstage_endpoint_requests:rate5m",
    total(_REQUESTS, *_BY_ENDPOINT),
    "requests that ended per second",
)
ERRORS = Recording(
    "job_instance_endpoint:hotstage_endpoint_errors:ratio_rate5m",
    f"({total(_FAILED, *_BY_ROUTE)} or 0 * {total(_REQUESTS, *_BY_ROUTE)}) / {total(_REQUESTS, *_BY_ROUTE)}",
    "share of the requests that failed, by host",
)
HOST_P95 = Recording(
    "job_instance_endpoint:hotstage_endpoint_request_duration_seconds:p95_5m",
    RULE.quantile(0.95, metrics.ENDPOINT_DURATION, by=_BY_ROUTE),
    "P95 of requests, by host",
)
OVER_PEERS = Recording(
    "job_instance_endpoint:hotstage_endpoint_request_duration_seconds_p95:over_peers",
    f"{HOST_P95.name} / on (job, endpoint, modality) group_left () "
    f"quantile by (job, endpoint, modality) (0.5, {HOST_P95.name})",
    "a host's P95 over the median of all hosts that serve the endpoint",
)

RECORDINGS = (
    Recording(
        "job_endpoint:hotstage_endpoint_heat:sum",
        total(RULE.select(metrics.ENDPOINT_HEAT), *_BY_ENDPOINT),
        "heat of an endpoint over all hosts",
    ),
    REQUESTS,
    ERRORS,
    Recording(
        "job_endpoint:hotstage_endpoint_request_duration_seconds:p95_5m",
        RULE.quantile(0.95, metrics.ENDPOINT_DURATION, by=_BY_ENDPOINT),
        "P95 of requests over all hosts",
    ),
    HOST_P95,
    OVER_PEERS,
    Recording(
        "job_stage:hotstage_stage_duration_seconds:p50_5m",
        RULE.quantile(0.5, metrics.STAGE_DURATION, by=_BY_STAGE),
        "median of a stage over all hosts",
    ),
    Recording(
        "job_stage:hotstage_stage_duration_seconds:p95_5m",
        RULE.quantile(0.95, metrics.STAGE_DURATION, by=_BY_STAGE),
        "P95 of a stage over all hosts",
    ),
    Recording(
        "job_instance:hotstage_instance_load_ratio:max",
        highest(RULE.select(metrics.INSTANCE_LOAD), "job", "instance"),
        "load of the most loaded server instance of a host",
    ),
    Recording(
        "job:hotstage_instance_load_ratio:avg",
        f"avg by (job) ({RULE.select(metrics.INSTANCE_LOAD)})",
        "mean load of all server instances",
    ),
    Recording(
        "job:hotstage_window_active:sum",
        f"sum by (job, kind) ({RULE.select(metrics.WINDOW_ACTIVE)})",
        "anomaly windows open in the fleet, by kind",
    ),
)
