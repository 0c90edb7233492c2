# SPDX-License-Identifier: Apache-2.0
"""Every exported metric once: name, type, labels, bound, help. Exporters, dashboards, alerts read this table.

Prometheus base units; a name, once released, never changes. Never a client library here.
"""

from __future__ import annotations

from hotstage.sinks.class_metrics import CLASS_METRICS
from hotstage.sinks.driver_metrics import DRIVER_METRICS
from hotstage.sinks.engine_metrics import ENGINE_METRICS
from hotstage.sinks.kernel_metrics import KERNEL_METRICS
from hotstage.sinks.memory_metrics import MEMORY_METRICS
from hotstage.sinks.metric import Metric
from hotstage.sinks.pressure_metrics import PRESSURE_METRICS
from hotstage.sinks.scheduling_metrics import SCHEDULING_METRICS
from hotstage.sinks.self_metrics import SELF_METRICS
from hotstage.sinks.token_metrics import TOKEN_METRICS

# Powers of two are edges of the scale-3 exponential histogram, so both can be compared without conversion.
# Most of what is exported are buckets: where little happens, an edge is left out.
STAGE_EDGES = tuple(2.0**power for power in (-10, -8, *range(-7, 4), 5))
"""Seconds, 0.98 ms to 32 s; in steps of two from 3.9 ms to 8 s."""
REQUEST_EDGES = tuple(2.0**power for power in (-5, -3, *range(-2, 6), 7, 8))
"""Seconds, 31 ms to 256 s; in steps of two from 125 ms to 32 s."""

_STAGE = ("stage", "modality", "model_name", "gpu_uuid")
_ROUTE = ("endpoint", "instance_id", "modality")
_WINDOW = ("kind", "severity", "stage")

STAGE_DURATION = Metric(
    "hotstage_stage_duration_seconds",
    "histogram",
    _STAGE,
    "Duration of ended stages, host begin to end.",
    cap=71,
    edges=STAGE_EDGES,
)
STAGE_INFLIGHT = Metric(
    "hotstage_stage_inflight", "gauge", _STAGE, "Stages open now.", cap=88, counts="stage"
)
STAGE_STATE = Metric(
    "hotstage_stage_state",
    "gauge",
    ("stage", "modality", "state"),
    "1 for the state the stage is in: idle, active, or stalled while a window is open on it.",
    cap=111,
)
ENDPOINT_REQUESTS = Metric(
    "hotstage_endpoint_requests_total",
    "counter",
    ("endpoint", "modality", "model_name", "outcome"),
    "Requests that ended, by outcome.",
    cap=112,
    counts="request",
)
ENDPOINT_DURATION = Metric(
    "hotstage_endpoint_request_duration_seconds",
    "histogram",
    ("endpoint", "modality", "model_name"),
    "Duration of ended requests.",
    cap=32,
    edges=REQUEST_EDGES,
)
ENDPOINT_HEAT = Metric(
    "hotstage_endpoint_heat",
    "gauge",
    ("endpoint", "modality"),
    "Request rate times the endpoint's weight, and times what [frame] heat_weight says a request weighs.",
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
    cap=28,
)
INSTANCE_DEVIATION = Metric(
    "hotstage_instance_dispatch_deviation",
    "gauge",
    ("instance_id",),
    "log2 of load share over heat share; 0 is as hot as loaded.",
    cap=28,
)
ROUTE_HEAT = Metric(
    "hotstage_endpoint_instance_heat", "gauge", _ROUTE, "Heat of an endpoint on one instance.", cap=64
)
ROUTE_RATE = Metric(
    "hotstage_endpoint_instance_request_rate",
    "gauge",
    _ROUTE,
    "Requests that began per second, over the last 10 s.",
    cap=64,
)
ROUTE_P95 = Metric(
    "hotstage_endpoint_instance_latency_p95_seconds",
    "gauge",
    _ROUTE,
    "Nearest-rank p95 of requests that ended in the last 60 s; absent below 20 of them.",
    cap=64,
)
ROUTE_REQUESTS = Metric(
    "hotstage_endpoint_instance_requests",
    "gauge",
    _ROUTE,
    "Requests that ended since the agent began.",
    cap=64,
    counts="request",
)
INSTANCE_CPU = Metric(
    "hotstage_instance_cpu_load_ratio",
    "gauge",
    ("instance_id",),
    "CPU time of the instance over what its limits allow it.",
    cap=28,
)
INSTANCE_MEMORY = Metric(
    "hotstage_instance_memory_load_ratio",
    "gauge",
    ("instance_id",),
    "Memory of the instance over what its limits allow it.",
    cap=28,
)
STAGE_WAIT = Metric(
    "hotstage_stage_wait_seconds_total",
    "counter",
    ("stage", "modality", "reason"),
    "Time that threads of the stage spent in calls that returned; reason is sync, memcpy or alloc.",
    cap=72,
)
STAGE_GRAPH_KERNELS = Metric(
    "hotstage_stage_graph_kernels_total",
    "counter",
    ("stage", "modality"),
    "Kernels that graph launches replayed; without those of graphs that were made before the probes came.",
    cap=12,
    counts="kernel",
)
UNKNOWN_GRAPHS = Metric(
    "hotstage_launches_unknown_graphs_total",
    "counter",
    (),
    "Launches of graphs of which nobody knows how many kernels they replay.",
    counts="call",
)
SLO_EVENTS = Metric(
    "hotstage_slo_events_total",
    "counter",
    ("slo", "outcome"),
    "Requests that count for a service level objective; outcome is good or bad.",
    cap=17,
    counts="request",
)
SLO_OBJECTIVE = Metric(
    "hotstage_slo_objective_ratio", "gauge", ("slo",), "Share of the requests that must be good.", cap=8
)
UNATTRIBUTED = Metric(
    "hotstage_unattributed_ratio", "gauge", (), "Launch-class calls without a stage over all of them."
)
CALLS = Metric(
    "hotstage_calls_total",
    "counter",
    ("call", "stage", "modality"),
    "CUDA, NCCL and cuDNN calls that returned or were entered, counted in the kernel.",
    cap=180,
    counts="call",
)
CALL_ERRORS = Metric(
    "hotstage_call_errors_total",
    "counter",
    ("call", "stage", "modality"),
    "Calls that returned an error, out of memory included.",
    cap=64,
    counts="error",
)
WINDOW_ANOMALIES = Metric(
    "hotstage_window_anomalies_total", "counter", _WINDOW, "Anomaly windows opened.", cap=36, counts="window"
)
WINDOW_ACTIVE = Metric(
    "hotstage_window_active", "gauge", _WINDOW, "Anomaly windows open now.", cap=36, counts="window"
)
WINDOW_SCORE = Metric("hotstage_window_score", "gauge", _WINDOW, "Highest score of the open ones.", cap=36)
BREAKER_STATE = Metric(
    "hotstage_breaker_state",
    "gauge",
    ("breaker", "state"),
    "1 for the state that callers see.",
    cap=264,
)
BREAKER_ENFORCED = Metric(
    "hotstage_breaker_enforced", "gauge", ("breaker",), "1 if callers heed it now, 0 in dry run.", cap=44
)
BREAKER_STALE = Metric(
    "hotstage_breaker_stale", "gauge", ("breaker",), "1 while there is no data to judge by.", cap=44
)
BREAKER_TRANSITIONS = Metric(
    "hotstage_breaker_transitions_total",
    "counter",
    ("breaker", "from", "to", "reason"),
    "Changes of state; reason is window, cool_down, recovered, relapse or override.",
    cap=52,
    counts="transition",
)
BREAKER_LAST = Metric(
    "hotstage_breaker_last_transition_timestamp_seconds",
    "gauge",
    ("breaker",),
    "Unix time of the last change of state.",
    cap=44,
)
GPU_INFO = Metric(
    "hotstage_gpu_info",
    "gauge",
    ("gpu_uuid", "gpu", "name", "pci_bus_id", "driver_version"),
    "1 for each GPU; join on gpu_uuid.",
    cap=28,
)
GPU_XID = Metric(
    "hotstage_gpu_xid_errors_total", "counter", ("gpu_uuid", "xid"), "XIDs seen.", cap=24, counts="error"
)
GPU_XID_LAST = Metric(
    "hotstage_gpu_xid_last_timestamp_seconds",
    "gauge",
    ("gpu_uuid", "xid"),
    "Unix time of the last one.",
    cap=24,
)
GPU_THROTTLE = Metric(
    "hotstage_gpu_throttle_active",
    "gauge",
    ("gpu_uuid", "reason"),
    "1 while the driver names this slowdown reason.",
    cap=48,
)
METRICS: tuple[Metric, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Metric)),
    *CLASS_METRICS,
    *KERNEL_METRICS,
    *TOKEN_METRICS,
    *ENGINE_METRICS,
    *DRIVER_METRICS,
    *SCHEDULING_METRICS,
    *MEMORY_METRICS,
    *PRESSURE_METRICS,
    *SELF_METRICS,
)
