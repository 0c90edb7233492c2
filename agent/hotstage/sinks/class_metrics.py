# SPDX-License-Identifier: Apache-2.0
"""The exported metrics of request classes and of what tokens cost, a part of the table in `metrics.py`.

`request_class` is a modality fingerprint (llm, vlm, audio, vlm+audio, video, …), `size` a class of input
tokens, or `all` of them together: quantiles of sizes cannot be added up.
"""

from __future__ import annotations

from hotstage.sinks.metric import Metric
from hotstage.stages.request_class import CLASSES, FINGERPRINTS

_SIZED = ("request_class", "size")
_CLASS = ("request_class",)
_FINGERPRINTS = len(FINGERPRINTS)
_SIZED_CAP = 3 * _FINGERPRINTS
"""Each fingerprint as a whole, and two sizes of each; a host serves half of the fingerprints in more."""
_OF_WINDOW = "of the requests that ended in the last 60 s"

REQUESTS = Metric(
    "hotstage_request_class_requests_total",
    "counter",
    _SIZED,
    "Requests that ended, by modality fingerprint and size of the input; refused ones left out.",
    cap=CLASSES,
    counts="request",
)
MEAN = Metric(
    "hotstage_request_class_latency_mean_seconds",
    "gauge",
    _SIZED,
    f"Mean response time {_OF_WINDOW}.",
    cap=_SIZED_CAP,
)
P95 = Metric(
    "hotstage_request_class_latency_p95_seconds",
    "gauge",
    _SIZED,
    f"Nearest-rank p95 {_OF_WINDOW}; absent below 20 of them.",
    cap=_SIZED_CAP,
)
P99 = Metric(
    "hotstage_request_class_latency_p99_seconds",
    "gauge",
    _SIZED,
    f"Nearest-rank p99 {_OF_WINDOW}; absent below 20 of them.",
    cap=_SIZED_CAP,
)
TARGET = Metric(
    "hotstage_request_class_p99_target_seconds",
    "gauge",
    _CLASS,
    "The p99 that the class should have; absent where it has no target.",
    cap=_FINGERPRINTS,
)
WITHIN = Metric(
    "hotstage_request_class_within_target_ratio",
    "gauge",
    _CLASS,
    f"Share within the class's target, {_OF_WINDOW}; absent below 20 of them.",
    cap=_FINGERPRINTS,
)
TOKEN_LATENCY = Metric(
    "hotstage_request_class_token_equivalent_latency_seconds",
    "gauge",
    _CLASS,
    f"Seconds per token equivalent: latency over weighted tokens, {_OF_WINDOW}.",
    cap=_FINGERPRINTS,
)
PENALTY = Metric(
    "hotstage_request_class_slo_penalty_seconds",
    "gauge",
    _CLASS,
    "Weight times what the p99 is above its baseline, both of the class's modality; 0 within it.",
    cap=_FINGERPRINTS,
)
ENDPOINT_PENALTY = Metric(
    "hotstage_endpoint_slo_penalty_seconds",
    "gauge",
    ("endpoint", "request_class"),
    "The same of one endpoint's requests, with the endpoint's own baseline and factor where it has them.",
    cap=48,
)
ENDPOINT_TOKEN_LATENCY = Metric(
    "hotstage_token_equivalent_latency_seconds",
    "gauge",
    ("endpoint", "modality"),
    f"Seconds per token equivalent of an endpoint, whatever its stages: latency over weighted tokens, "
    f"{_OF_WINDOW}.",
)

CLASS_METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
