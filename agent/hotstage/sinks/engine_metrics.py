# SPDX-License-Identifier: Apache-2.0
"""The exported metrics of engines, a part of the table in `metrics.py`.

An engine's own page says more, and finer; these are what is judged and shown here, under one name for all
engines and with the labels of hotstage's other series.
"""

from __future__ import annotations

from hotstage.sinks.metric import Kind, Metric

_MODEL = ("instance_id", "model_name", "runtime")
_ENGINES = 8
"""Models of engines that a host has as a rule; further ones are left out and counted."""


def _row(name: str, kind: Kind, help: str, *labels: str, cap: int = _ENGINES, counts: str = "") -> Metric:
    return Metric(f"hotstage_engine_{name}", kind, (*_MODEL, *labels), help, cap=cap, counts=counts)


QUEUE = _row("queue_requests", "gauge", "Requests that wait in the engine's scheduler.", counts="request")
RUNNING = _row("running_requests", "gauge", "Requests in the engine's running batches.", counts="request")
WAITING = _row(
    "waiting_requests",
    "gauge",
    "Requests that wait for a reason that the engine names.",
    "reason",
    cap=2 * _ENGINES,
    counts="request",
)
KV_USE = _row("kv_use_ratio", "gauge", "KV cache in use over KV cache, of the fullest pool.")
PROMPT_TOKENS = _row(
    "prompt_tokens_total", "counter", "Prompt tokens since the engine began.", counts="token"
)
OUTPUT_TOKENS = _row(
    "output_tokens_total", "counter", "Output tokens since the engine began.", counts="token"
)
REQUESTS = _row(
    "requests_total",
    "counter",
    "Requests that ended since the engine began, by outcome; ended is all, where it tells them not apart.",
    "outcome",
    cap=3 * _ENGINES,
    counts="request",
)
PREEMPTIONS = _row(
    "preemptions_total",
    "counter",
    "Requests put back for want of KV cache since the engine began.",
    counts="request",
)
MM_CACHE_HITS = _row(
    "mm_cache_hits_total", "counter", "Multimodal inputs found in the engine's cache.", counts="input"
)
MM_CACHE_QUERIES = _row(
    "mm_cache_queries_total", "counter", "Multimodal inputs looked up in the engine's cache.", counts="input"
)
PREFIX_CACHE_HITS = _row(
    "prefix_cache_hits_total", "counter", "Prompt tokens found in the engine's prefix cache.", counts="token"
)
PREFIX_CACHE_QUERIES = _row(
    "prefix_cache_queries_total",
    "counter",
    "Prompt tokens looked up in the engine's prefix cache.",
    counts="token",
)
PHASE_P95 = _row(
    "phase_p95_seconds",
    "gauge",
    "p95 of a phase over the engine's last 60 s, from its histogram; absent below 20 of them. "
    "Phases are ttft, itl, e2e, queue, prefill and decode.",
    "phase",
    cap=6 * _ENGINES,
)
PHASE_MEAN = _row(
    "phase_mean_seconds",
    "gauge",
    "Mean of a phase over the engine's last 60 s, exact; Triton tells of most phases nothing else.",
    "phase",
    cap=36,
)
SCRAPE = Metric(
    "hotstage_engine_scrape_duration_seconds",
    "gauge",
    ("instance_id",),
    "Time that the engine's last page took.",
    cap=16,
)
FAILURES = Metric(
    "hotstage_engine_scrape_failures_total",
    "counter",
    ("instance_id", "reason"),
    "Looks at an engine that gave nothing: unreachable, timeout, status, size, encoding, page or token.",
    cap=3 * _ENGINES,
    counts="look",
)

ENGINE_METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
