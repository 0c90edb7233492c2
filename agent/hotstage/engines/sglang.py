# SPDX-License-Identifier: Apache-2.0
"""SGLang's names, 0.4 to 0.5.23 (`--enable-metrics`).

Source: python/sglang/srt/observability/metrics_collector.py (before 0.5.10 srt/metrics/collector.py),
docs/references/production_metrics.md.
"""

from __future__ import annotations

from hotstage.engines.table import Named, Runtime, Split, Table, Timing

SGLANG = Table(
    runtime=Runtime.sglang,
    marks=("sglang:", "sglang_"),
    prefixes=("sglang:", "sglang_"),
    model_label="model_name",
    gauges=(
        Named("queue", ("num_queue_reqs",)),
        Named("running", ("num_running_reqs",)),
        # The fullest of the pools; its siblings `full_`, `swa_`, `mamba_` are the pools.
        Named("kv_use_ratio", ("token_usage",), is_ratio=True),
    ),
    counters=(
        Named("prompt_tokens", ("prompt_tokens",)),
        Named("output_tokens", ("generation_tokens",)),
        Named("preemptions", ("num_retracted_requests",)),
        Named("prefix_cache_hits", ("cached_tokens",)),
        # What was looked up are the prompts.
        Named("prefix_cache_queries", ("prompt_tokens",)),
    ),
    waiting=(
        Split(("num_grammar_queue_reqs",), key="grammar"),
        Split(("num_paused_reqs",), key="paused"),
        Split(
            ("num_prefill_bootstrap_queue_reqs", "num_prefill_prealloc_queue_reqs"), key="prefill_bootstrap"
        ),
        Split(("num_prefill_inflight_queue_reqs",), key="prefill_inflight"),
        Split(("num_decode_prealloc_queue_reqs",), key="decode_prealloc"),
        Split(("num_decode_transfer_queue_reqs",), key="decode_transfer"),
        Split(("num_decode_host_receive_queue_reqs",), key="decode_host_receive"),
    ),
    requests=(
        # Aborted requests are among them: they cannot be called ok.
        Split(("num_requests",), key="ended"),
        Split(("num_aborted_requests",), key="cancelled"),
    ),
    timings=(
        Timing("ttft", ("time_to_first_token_seconds",)),
        Timing("itl", ("inter_token_latency_seconds", "time_per_output_token_seconds")),
        Timing("e2e", ("e2e_request_latency_seconds",)),
        Timing("queue", ("queue_time_seconds",)),
        Timing("prefill", ("per_stage_req_latency_seconds",), where={"stage": "prefill_forward"}),
        Timing("decode", ("per_stage_req_latency_seconds",), where={"stage": "decode_forward"}),
    ),
)
