# SPDX-License-Identifier: Apache-2.0
"""Every exported metric once: name, type, labels, bound, help. Dashboards, alerts and docs read this table.

Prometheus base units; a name, once released, never changes. Never a client library here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

# Powers of two are edges of the scale-3 exponential histogram, so both can be compared without conversion.
STAGE_EDGES = tuple(2.0**power for power in range(-10, 6))
"""Seconds, 0.98 ms to 32 s."""
REQUEST_EDGES = tuple(2.0**power for power in range(-7, 9))
"""Seconds, 7.8 ms to 256 s."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`cap` bounds the children; further label values are counted under `other` and as dropped."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    cap: int = 32
    edges: tuple[float, ...] = ()


_STAGE = ("stage", "modality", "model_name", "gpu_uuid")
_WINDOW = ("kind", "severity", "stage")

STAGE_DURATION = Metric(
    "hotstage_stage_duration_seconds",
    "histogram",
    _STAGE,
    "Duration of ended stages, host begin to end.",
    cap=100,
    edges=STAGE_EDGES,
)
STAGE_INFLIGHT = Metric("hotstage_stage_inflight", "gauge", _STAGE, "Stages open now.", cap=110)
STAGE_STATE = Metric(
    "hotstage_stage_state",
    "gauge",
    ("stage", "modality", "state"),
    "1 for the state the stage is in: idle, active, or stalled while a window is open on it.",
    cap=120,
)
ENDPOINT_REQUESTS = Metric(
    "hotstage_endpoint_requests_total",
    "counter",
    ("endpoint", "modality", "model_name", "outcome"),
    "Requests that ended, by outcome.",
    cap=150,
)
ENDPOINT_DURATION = Metric(
    "hotstage_endpoint_request_duration_seconds",
    "histogram",
    ("endpoint", "modality", "model_name"),
    "Duration of ended requests.",
    cap=36,
    edges=REQUEST_EDGES,
)
ENDPOINT_HEAT = Metric(
    "hotstage_endpoint_heat",
    "gauge",
    ("endpoint", "modality"),
    "Request rate times the endpoint's weight, per second.",
)
ENDPOINT_P95 = Metric(
    "hotstage_endpoint_latency_p95_seconds",
    "gauge",
    ("endpoint", "modality"),
    "Nearest-rank p95 of requests that ended in the last 60 s; absent below 20 of them.",
)
INSTANCE_LOAD = Metric(
    "hotstage_instance_load_ratio",
    "gauge",
    ("instance_id",),
    "Mean of CPU and memory load of the instance.",
)
INSTANCE_DEVIATION = Metric(
    "hotstage_instance_dispatch_deviation",
    "gauge",
    ("instance_id",),
    "log2 of load share over heat share; 0 is as hot as loaded.",
)
UNATTRIBUTED = Metric(
    "hotstage_unattributed_ratio", "gauge", (), "Launch-class calls without a stage over all of them."
)
CALLS = Metric(
    "hotstage_calls_total",
    "counter",
    ("call", "stage", "modality"),
    "CUDA, NCCL and cuDNN calls that returned or were entered, counted in the kernel.",
    cap=300,
)
CALL_ERRORS = Metric(
    "hotstage_call_errors_total",
    "counter",
    ("call", "stage", "modality"),
    "Calls that returned an error, out of memory included.",
    cap=100,
)
WINDOW_ANOMALIES = Metric(
    "hotstage_window_anomalies_total", "counter", _WINDOW, "Anomaly windows opened.", cap=60
)
WINDOW_ACTIVE = Metric("hotstage_window_active", "gauge", _WINDOW, "Anomaly windows open now.", cap=60)
WINDOW_SCORE = Metric("hotstage_window_score", "gauge", _WINDOW, "Highest score of the open ones.", cap=60)
BREAKER_STATE = Metric(
    "hotstage_breaker_state",
    "gauge",
    ("breaker", "state"),
    "1 for the state that callers see.",
    cap=288,
)
BREAKER_ENFORCED = Metric(
    "hotstage_breaker_enforced", "gauge", ("breaker",), "1 if callers heed it, 0 in dry run.", cap=48
)
BREAKER_STALE = Metric(
    "hotstage_breaker_stale", "gauge", ("breaker",), "1 while there is no data to judge by.", cap=48
)
BREAKER_TRANSITIONS = Metric(
    "hotstage_breaker_transitions_total",
    "counter",
    ("breaker", "from", "to", "reason"),
    "Changes of state; reason is window, cool_down, recovered, relapse or override.",
    cap=150,
)
BREAKER_LAST = Metric(
    "hotstage_breaker_last_transition_timestamp_seconds",
    "gauge",
    ("breaker",),
    "Unix time of the last change of state.",
    cap=48,
)
GPU_INFO = Metric(
    "hotstage_gpu_info",
    "gauge",
    ("gpu_uuid", "gpu", "name", "pci_bus_id", "driver_version"),
    "1 for each GPU; join on gpu_uuid.",
    cap=64,
)
GPU_XID = Metric("hotstage_gpu_xid_errors_total", "counter", ("gpu_uuid", "xid"), "XIDs seen.", cap=64)
GPU_XID_LAST = Metric(
    "hotstage_gpu_xid_last_timestamp_seconds",
    "gauge",
    ("gpu_uuid", "xid"),
    "Unix time of the last one.",
    cap=64,
)
GPU_THROTTLE = Metric(
    "hotstage_gpu_throttle_active",
    "gauge",
    ("gpu_uuid", "reason"),
    "1 while the driver names this slowdown reason.",
    cap=64,
)
OUTBOX_PENDING = Metric(
    "hotstage_webhook_outbox_pending", "gauge", (), "Events that no notifier has taken over yet."
)
OUTBOX_AGE = Metric("hotstage_webhook_outbox_oldest_age_seconds", "gauge", (), "Age of the oldest of them.")
OUTBOX_ENQUEUED = Metric(
    "hotstage_webhook_events_total", "counter", (), "Events written to the outbox since the store was made."
)
WEBHOOK_DELIVERIES = Metric(
    "hotstage_webhook_deliveries_total",
    "counter",
    ("destination", "result"),
    "Attempts as the notifier reports them: delivered, failed, dead.",
    cap=60,
)
WEBHOOK_PENDING = Metric(
    "hotstage_webhook_pending", "gauge", ("destination",), "Deliveries that wait in the notifier."
)
WEBHOOK_AGE = Metric(
    "hotstage_webhook_oldest_age_seconds", "gauge", ("destination",), "Age of the oldest of them."
)
WEBHOOK_DISABLED = Metric(
    "hotstage_webhook_disabled", "gauge", ("destination",), "1 after the destination answered 410."
)
BUILD_INFO = Metric("hotstage_build_info", "gauge", ("version", "loader", "rung"), "Always 1.")
UP = Metric("hotstage_up", "gauge", (), "1 while the agent ticks.")
COLLECTOR_UP = Metric(
    "hotstage_collector_up", "gauge", ("collector",), "1 while this source is fresh: requests, calls, …"
)
TICKS = Metric("hotstage_ticks_total", "counter", ("tick",), "Ticks done: fast, slow.")
TICKS_LATE = Metric("hotstage_ticks_late_total", "counter", (), "Fast ticks that came too late.")
TICK_P99 = Metric(
    "hotstage_tick_p99_seconds", "gauge", ("tick",), "p99 of the time a tick takes, last ten minutes."
)
LOSSES = Metric(
    "hotstage_losses_total", "counter", ("loss",), "What the kernel side could not keep, by kind.", cap=64
)
ATTACHED = Metric("hotstage_coverage_attached_symbols", "gauge", (), "Symbols probed, each library once.")
MISSED = Metric("hotstage_coverage_missed_symbols", "gauge", (), "Catalogued symbols that are not probed.")
AGENT_CPU = Metric("hotstage_agent_cpu_seconds_total", "counter", (), "CPU time of the agent.")
AGENT_RESIDENT = Metric("hotstage_agent_resident_bytes", "gauge", (), "Resident memory of the agent.")
MAP_BYTES = Metric("hotstage_agent_map_bytes", "gauge", (), "Kernel memory of the agent's BPF maps.")
STORE_PENDING = Metric("hotstage_store_pending_changes", "gauge", (), "Changes that wait for the disk.")
STORE_COMMITTED = Metric("hotstage_store_changes_total", "counter", (), "Changes written.")
STORE_LOST = Metric("hotstage_store_lost_changes_total", "counter", (), "Changes dropped, the disk refused.")
PAGE_DROPPED = Metric(
    "hotstage_page_dropped_total", "counter", (), "Breakers that found no place on the shared page."
)
SINK_ERRORS = Metric("hotstage_sink_errors_total", "counter", ("sink",), "Failures of an output.")
SERIES = Metric("hotstage_series", "gauge", (), "Series in this scrape, self metrics not counted.")
SERIES_DROPPED = Metric(
    "hotstage_series_dropped_total",
    "counter",
    ("metric",),
    "Observations counted under `other` because the metric has as many series as it may.",
)
SCRAPE_SECONDS = Metric("hotstage_scrape_duration_seconds", "gauge", (), "Time the last scrape's body took.")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
