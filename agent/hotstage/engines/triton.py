# SPDX-License-Identifier: Apache-2.0
"""Triton's names, and those of its TensorRT-LLM and vLLM backends on the same page.

Source: server/docs/user_guide/metrics.md; tensorrtllm_backend README ("Triton Metrics"); vllm_backend README.
"""

from __future__ import annotations

from hotstage.engines import vllm
from hotstage.engines.table import MICROSECONDS, MILLISECONDS, Named, Runtime, Split, Table, Timing

FAILURES = {"REJECTED": "refused", "CANCELED": "cancelled", "BACKEND": "error", "OTHER": "error"}
_TRTLLM = "nv_trt_llm_request_metrics"


def _of_vllm(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for name in names for prefix in vllm.VLLM.prefixes)


def _gauges() -> tuple[Named, ...]:
    of_vllm = {each.says: _of_vllm(each.names) for each in vllm.GAUGES}
    return (
        Named("queue", (_TRTLLM,), where={"request_type": "waiting"}),
        Named("queue", ("nv_inference_pending_request_count", *of_vllm["queue"])),
        Named("running", (_TRTLLM,), where={"request_type": "scheduled"}),
        Named("running", of_vllm["running"]),
        Named(
            "kv_use_ratio",
            ("nv_trt_llm_kv_cache_block_metrics",),
            where={"kv_cache_block_type": "fraction"},
            is_ratio=True,
        ),
        Named("kv_use_ratio", of_vllm["kv_use_ratio"], is_ratio=True),
    )


TRITON = Table(
    runtime=Runtime.triton,
    marks=("nv_inference_", "nv_trt_llm_"),
    prefixes=("",),
    model_label="model",
    gauges=_gauges(),
    counters=tuple(Named(each.says, _of_vllm(each.names)) for each in vllm.COUNTERS),
    waiting=(),
    requests=(
        Split(("nv_inference_request_success",), key="ok"),
        Split(("nv_inference_request_failure",), label="reason", keys=FAILURES, otherwise="error"),
    ),
    timings=(
        Timing("ttft", ("nv_inference_first_response_histogram_ms",), MILLISECONDS),
        *(Timing(each.phase, _of_vllm(each.names)) for each in vllm.TIMINGS),
        Timing("e2e", ("nv_inference_request_summary_us",), MICROSECONDS),
        Timing("queue", ("nv_inference_queue_summary_us",), MICROSECONDS),
        Timing(
            "e2e",
            ("nv_inference_request_duration_us",),
            MICROSECONDS,
            counted_by="nv_inference_request_success",
        ),
        Timing(
            "queue",
            ("nv_inference_queue_duration_us",),
            MICROSECONDS,
            counted_by="nv_inference_request_success",
        ),
    ),
)
