# SPDX-License-Identifier: Apache-2.0
"""Metrics of the agent itself: webhooks, sources, ticks, store, outputs. A part of `metrics.py`."""

from __future__ import annotations

from hotstage.sinks.metric import Metric
from hotstage.store.deliveries import DURATION_EDGES

OUTBOX_PENDING = Metric(
    "hotstage_webhook_outbox_pending",
    "gauge",
    (),
    "Events that no notifier has taken over yet.",
    counts="event",
)
OUTBOX_AGE = Metric("hotstage_webhook_outbox_oldest_age_seconds", "gauge", (), "Age of the oldest of them.")
OUTBOX_ENQUEUED = Metric(
    "hotstage_webhook_events_total",
    "counter",
    (),
    "Events written to the outbox since the store was made.",
    counts="event",
)
WEBHOOK_DELIVERIES = Metric(
    "hotstage_webhook_deliveries_total",
    "counter",
    ("destination", "result"),
    "Attempts as the notifier reports them: delivered, failed, dead.",
    cap=48,
    counts="delivery",
)
WEBHOOK_PENDING = Metric(
    "hotstage_webhook_pending",
    "gauge",
    ("destination",),
    "Deliveries that wait in the notifier.",
    cap=16,
    counts="delivery",
)
WEBHOOK_AGE = Metric(
    "hotstage_webhook_oldest_age_seconds", "gauge", ("destination",), "Age of the oldest of them.", cap=16
)
WEBHOOK_DISABLED = Metric(
    "hotstage_webhook_disabled", "gauge", ("destination",), "1 after the destination answered 410.", cap=16
)
WEBHOOK_REFUSED = Metric(
    "hotstage_webhook_refused",
    "gauge",
    ("destination",),
    "1 while the destination's URL or secret cannot be used: its events wait.",
    cap=16,
)
WEBHOOK_DURATION = Metric(
    "hotstage_webhook_delivery_duration_seconds",
    "histogram",
    ("destination",),
    "Time of an attempt, connect to answer, whatever its result.",
    cap=8,
    edges=DURATION_EDGES,
)
BUILD_INFO = Metric("hotstage_build_info", "gauge", ("version", "loader", "rung"), "Always 1.", cap=2)
UP = Metric("hotstage_up", "gauge", (), "1 while the agent ticks.")
COLLECTOR_UP = Metric(
    "hotstage_collector_up",
    "gauge",
    ("collector",),
    "1 while this source is fresh: requests, calls, engine:NAME, …",
    cap=24,
)
COLLECTOR_LAST = Metric(
    "hotstage_collector_last_success_timestamp_seconds",
    "gauge",
    ("collector",),
    "Unix time when this source was last fresh.",
    cap=24,
)
RELOAD_OK = Metric(
    "hotstage_config_last_reload_successful",
    "gauge",
    (),
    "1 unless the last reload was refused; the configuration before it stands.",
)
TICKS = Metric("hotstage_ticks_total", "counter", ("tick",), "Ticks done: fast, slow.", cap=2, counts="tick")
TICKS_LATE = Metric(
    "hotstage_ticks_late_total", "counter", (), "Fast ticks that came too late.", counts="tick"
)
TICK_P99 = Metric(
    "hotstage_tick_p99_seconds", "gauge", ("tick",), "p99 of the time a tick takes, last ten minutes.", cap=2
)
LOSSES = Metric(
    "hotstage_losses_total",
    "counter",
    ("loss",),
    "What the kernel side could not keep, by kind.",
    cap=37,
    counts="loss",
)
LAUNCHES = Metric(
    "hotstage_launches_total",
    "counter",
    ("source",),
    "Launch-class calls by what tells their stage: mark, nvtx, rule, fingerprint, none.",
    cap=5,
    counts="call",
)
ATTACHED = Metric(
    "hotstage_coverage_attached_symbols",
    "gauge",
    (),
    "Symbols probed in libraries that a process has, each library once.",
    counts="symbol",
)
MISSED = Metric(
    "hotstage_coverage_missed_symbols",
    "gauge",
    (),
    "Catalogued symbols of such libraries that are not probed.",
    counts="symbol",
)
AGENT_CPU = Metric("hotstage_agent_cpu_seconds_total", "counter", (), "CPU time of the agent.")
AGENT_RESIDENT = Metric("hotstage_agent_resident_bytes", "gauge", (), "Resident memory of the agent.")
MAP_BYTES = Metric("hotstage_agent_map_bytes", "gauge", (), "Kernel memory of the agent's BPF maps.")
PROBE_COST = Metric(
    "hotstage_probe_cost_ratio",
    "gauge",
    (),
    "Highest share of a process's CPU time that its probes cost, estimated over the last 10 s.",
)
GOVERNOR_LEVEL = Metric(
    "hotstage_governor_level",
    "gauge",
    ("level",),
    "Processes that are stepped down, by level: no_stacks, tails_only, counts_only, detached.",
    cap=4,
    counts="process",
)
STORE_PENDING = Metric(
    "hotstage_store_pending_changes", "gauge", (), "Changes that wait for the disk.", counts="change"
)
STORE_COMMITTED = Metric("hotstage_store_changes_total", "counter", (), "Changes written.", counts="change")
STORE_LOST = Metric(
    "hotstage_store_lost_changes_total", "counter", (), "Changes dropped, the disk refused.", counts="change"
)
PAGE_DROPPED = Metric(
    "hotstage_page_dropped_total",
    "counter",
    (),
    "Breakers that found no place on the shared page.",
    counts="breaker",
)
SINK_ERRORS = Metric(
    "hotstage_sink_errors_total", "counter", ("sink",), "Failures of an output.", cap=8, counts="error"
)
API_THREADLESS = Metric(
    "hotstage_api_threadless_connections_total",
    "counter",
    (),
    "Connections that were closed because no thread could be had.",
    counts="connection",
)
LOG_RECORDS = Metric(
    "hotstage_log_records_not_journaled_total",
    "counter",
    ("fate",),
    "Log records that systemd's journal did not take: refused went to standard error, dropped went nowhere.",
    cap=2,
    counts="record",
)
OTLP_SPANS = Metric(
    "hotstage_otlp_spans_total", "counter", (), "Spans that the OTLP collector took.", counts="span"
)
OTLP_DROPPED = Metric(
    "hotstage_otlp_spans_dropped_total",
    "counter",
    ("reason",),
    "Spans that were not exported, by reason.",
    cap=8,
    counts="span",
)
OTLP_EVENTS_DROPPED = Metric(
    "hotstage_otlp_events_dropped_total", "counter", (), "Window events given up.", counts="event"
)
OTLP_FAILURES = Metric(
    "hotstage_otlp_export_failures_total",
    "counter",
    ("signal",),
    "Exports that the OTLP collector did not take; signal is traces, metrics or events.",
    cap=3,
    counts="export",
)
SERIES = Metric(
    "hotstage_series", "gauge", (), "Series in this scrape, self metrics not counted.", counts="series"
)
SERIES_DROPPED = Metric(
    "hotstage_series_dropped_total",
    "counter",
    ("metric",),
    "Observations counted under `other`, and gauges left out of a scrape: the metric is at its cap.",
    cap=31,
    counts="observation",
)
SCRAPE_SECONDS = Metric("hotstage_scrape_duration_seconds", "gauge", (), "Time the last scrape's body took.")

SELF_METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
