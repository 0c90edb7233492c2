# SPDX-License-Identifier: Apache-2.0
"""vLLM's names, V0 to 0.33; `vllm_` instead of `vllm:` is what OpenTelemetry collectors make of them.

Source: vllm/v1/metrics/loggers.py, vllm/engine/metrics.py (V0), docs/usage/metrics.md.
"""

from __future__ import annotations

from hotstage.engines.table import Named, Runtime, Split, Table, Timing

FINISHED = {"stop": "ok", "length": "ok", "repetition": "ok", "abort": "cancelled", "error": "error"}
"""`finished_reason` (vllm.v1.engine.FinishReason) → outcome."""

GAUGES = (
    Named("queue", ("num_requests_waiting",)),
    Named("running", ("num_requests_running",)),
    Named("kv_use_ratio", ("kv_cache_usage_perc", "gpu_cache_usage_perc"), is_ratio=True),
)
COUNTERS = (
    Named("prompt_tokens", ("prompt_tokens",)),
    Named("output_tokens", ("generation_tokens",)),
    Named("preemptions", ("num_preemptions",)),
    Named("mm_cache_hits", ("mm_cache_hits",)),
    Named("mm_cache_queries", ("mm_cache_queries",)),
    Named("prefix_cache_hits", ("prefix_cache_hits", "gpu_prefix_cache_hits")),
    Named("prefix_cache_queries", ("prefix_cache_queries", "gpu_prefix_cache_queries")),
)
WAITING = (
    Split(("num_requests_waiting_by_reason",), label="reason"),
    Split(("num_requests_swapped",), key="swapped"),
)
REQUESTS = (Split(("request_success",), label="finished_reason", keys=FINISHED, otherwise="error"),)
TIMINGS = (
    Timing("ttft", ("time_to_first_token_seconds",)),
    # `request_time_per_output_token_seconds` is a mean per request, not the time between two tokens.
    Timing("itl", ("inter_token_latency_seconds", "time_per_output_token_seconds")),
    Timing("e2e", ("e2e_request_latency_seconds",)),
    Timing("queue", ("request_queue_time_seconds",)),
    Timing("prefill", ("request_prefill_time_seconds",)),
    Timing("decode", ("request_decode_time_seconds",)),
)

VLLM = Table(
    runtime=Runtime.vllm,
    marks=("vllm:", "vllm_"),
    prefixes=("vllm:", "vllm_"),
    model_label="model_name",
    gauges=GAUGES,
    counters=COUNTERS,
    waiting=WAITING,
    requests=REQUESTS,
    timings=TIMINGS,
)
