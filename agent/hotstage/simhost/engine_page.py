# SPDX-License-Identifier: Apache-2.0
"""What an engine model's `/metrics` looks like in each engine's own names. Text only.

Sources of names, labels and edges: vLLM vllm/v1/metrics/loggers.py (0.8 and 0.19), SGLang
python/sglang/srt/observability/metrics_collector.py (0.5.23), Triton server/docs/user_guide/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from hotstage.simhost.engine_model import EngineModel

MODEL = "sim/vlm-7b"

_REQUEST_EDGES = (
    0.3,
    0.5,
    0.8,
    1,
    1.5,
    2,
    2.5,
    5,
    10,
    15,
    20,
    30,
    40,
    50,
    60,
    120,
    240,
    480,
    960,
    1920,
    7680,
)
_VLLM_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
    640, 2560,
)  # fmt: skip
_VLLM_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_SGLANG_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_SGLANG_ITL = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6,
    0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
_SGLANG_QUEUE = (0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 60, 100, 400)
_SGLANG_STAGE = tuple(0.001 * 1.62**power for power in range(30))
_TRITON_MS = (100, 500, 2000, 5000)

Labels = Mapping[str, str]


class Dialect(StrEnum):
    vllm = "vllm"
    vllm_old = "vllm-old"
    """As of 0.8: names that were renamed since."""
    vllm_collector = "vllm-collector"
    """Through an OpenTelemetry collector: `vllm_` instead of `vllm:`."""
    sglang = "sglang"
    sglang_old = "sglang-old"
    triton = "triton"


def page(engine: EngineModel, dialect: Dialect, model: str = MODEL) -> str:
    """The page as of the model's time."""
    # Each series is written with its comments; a family has them once.
    once = dict.fromkeys(_WRITERS[dialect](engine, model))
    return "\n".join(once) + "\n"


def _vllm(engine: EngineModel, model: str) -> Iterator[str]:
    truth, labels = engine.truth, {"engine": "0", "model_name": model}
    yield from _vllm_shared(engine, labels)
    for reason, count in (("capacity", engine.waiting), ("deferred", 0)):
        yield from _one("vllm:num_requests_waiting_by_reason", "gauge", {**labels, "reason": reason}, count)
    yield from _one("vllm:kv_cache_usage_perc", "gauge", labels, engine.kv_used_ratio)
    yield from _one("vllm:mm_cache_queries_total", "counter", labels, truth.mm_queries)
    yield from _one("vllm:mm_cache_hits_total", "counter", labels, truth.mm_hits)
    yield from _one("vllm:prefix_cache_queries_total", "counter", labels, truth.prompt_tokens)
    yield from _one("vllm:prefix_cache_hits_total", "counter", labels, truth.cached_tokens)
    yield from _histogram("vllm:inter_token_latency_seconds", labels, _VLLM_ITL, _all(engine, "itl"))
    yield from _histogram("vllm:request_time_per_output_token_seconds", labels, _VLLM_ITL, [9.0, 9.0])


def _vllm_old(engine: EngineModel, model: str) -> Iterator[str]:
    truth, labels = engine.truth, {"engine": "0", "model_name": model}
    yield from _vllm_shared(engine, labels)
    yield from _one("vllm:gpu_cache_usage_perc", "gauge", labels, engine.kv_used_ratio)
    yield from _one("vllm:gpu_prefix_cache_queries_total", "counter", labels, truth.prompt_tokens)
    yield from _one("vllm:gpu_prefix_cache_hits_total", "counter", labels, truth.cached_tokens)
    yield from _histogram("vllm:time_per_output_token_seconds", labels, _VLLM_ITL, _all(engine, "itl"))


def _vllm_collector(engine: EngineModel, model: str) -> Iterator[str]:
    return (line.replace("vllm:", "vllm_") for line in _vllm(engine, model))


def _vllm_shared(engine: EngineModel, labels: Labels) -> Iterator[str]:
    truth = engine.truth
    yield from _one("vllm:num_requests_running", "gauge", labels, engine.running)
    yield from _one("vllm:num_requests_waiting", "gauge", labels, engine.waiting)
    yield from _one("vllm:num_preemptions_total", "counter", labels, truth.preemptions)
    yield from _one("vllm:prompt_tokens_total", "counter", labels, truth.prompt_tokens)
    yield from _one("vllm:generation_tokens_total", "counter", labels, truth.output_tokens)
    for reason in ("stop", "length", "abort", "error"):
        finished = {**labels, "finished_reason": reason}
        yield from _one("vllm:request_success_total", "counter", finished, truth.finished[reason])
    yield from _histogram("vllm:time_to_first_token_seconds", labels, _VLLM_TTFT, _all(engine, "ttft"))
    for name, phase in (
        ("e2e_request_latency", "e2e"),
        ("request_queue_time", "queue"),
        ("request_prefill_time", "prefill"),
        ("request_decode_time", "decode"),
    ):
        yield from _histogram(f"vllm:{name}_seconds", labels, _REQUEST_EDGES, _all(engine, phase))


def _sglang(engine: EngineModel, model: str) -> Iterator[str]:
    ranks = {
        "engine_type": "unified",
        "model_name": model,
        "moe_ep_rank": "0",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    requests = {"engine_type": "unified", "model_name": model}
    streamed = {**requests, "is_streaming": "true"}
    yield from _sglang_shared(engine, ranks, streamed)
    yield from _one("sglang:full_token_usage", "gauge", ranks, engine.kv_used_ratio)
    yield from _one("sglang:num_grammar_queue_reqs", "gauge", ranks, 0)
    yield from _one("sglang:num_prefill_bootstrap_queue_reqs", "gauge", ranks, 0)
    cached = {**requests, "cache_source": "device"}
    yield from _one("sglang:cached_tokens_total", "counter", cached, engine.truth.cached_tokens)
    yield from _one("sglang:num_retracted_requests_total", "counter", ranks, engine.truth.preemptions)
    yield from _histogram("sglang:inter_token_latency_seconds", requests, _SGLANG_ITL, _all(engine, "itl"))
    for stage, phase in (("prefill_forward", "prefill"), ("decode_forward", "decode")):
        of_stage = {**ranks, "stage": stage}
        seconds = _all(engine, phase)
        yield from _histogram("sglang:per_stage_req_latency_seconds", of_stage, _SGLANG_STAGE, seconds)


def _sglang_old(engine: EngineModel, model: str) -> Iterator[str]:
    labels = {"model_name": model}
    yield from _sglang_shared(engine, labels, labels)
    yield from _one("sglang:num_prefill_prealloc_queue_reqs", "gauge", labels, 0)
    yield from _histogram("sglang:time_per_output_token_seconds", labels, _SGLANG_ITL, _all(engine, "itl"))


def _sglang_shared(engine: EngineModel, ranks: Labels, requests: Labels) -> Iterator[str]:
    truth = engine.truth
    plain = {name: value for name, value in requests.items() if name != "is_streaming"}
    yield from _one("sglang:num_running_reqs", "gauge", ranks, engine.running)
    yield from _one("sglang:num_queue_reqs", "gauge", ranks, engine.waiting)
    yield from _one("sglang:token_usage", "gauge", ranks, engine.kv_used_ratio)
    yield from _one("sglang:prompt_tokens_total", "counter", requests, truth.prompt_tokens)
    yield from _one("sglang:generation_tokens_total", "counter", requests, truth.output_tokens)
    yield from _one("sglang:num_requests_total", "counter", requests, truth.finished.total())
    yield from _one("sglang:num_aborted_requests_total", "counter", plain, truth.finished["abort"])
    yield from _histogram("sglang:time_to_first_token_seconds", requests, _SGLANG_TTFT, _all(engine, "ttft"))
    yield from _histogram("sglang:e2e_request_latency_seconds", requests, _REQUEST_EDGES, _all(engine, "e2e"))
    yield from _histogram("sglang:queue_time_seconds", ranks, _SGLANG_QUEUE, _all(engine, "queue"))


def _triton(engine: EngineModel, model: str) -> Iterator[str]:
    truth, labels = engine.truth, {"model": model, "version": "1"}
    well = truth.finished["stop"] + truth.finished["length"]
    yield from _one("nv_inference_request_success", "counter", labels, well)
    for reason, count in (("CANCELED", truth.finished["abort"]), ("BACKEND", truth.finished["error"])):
        failed = {**labels, "reason": reason}
        yield from _one("nv_inference_request_failure", "counter", failed, count)
    yield from _one("nv_inference_pending_request_count", "gauge", labels, engine.waiting)
    for name, place in (("queue", 0), ("request", 1)):
        micros = round(sum(times[place] for times in truth.well) * 1e6)
        yield from _one(f"nv_inference_{name}_duration_us", "counter", labels, micros)
    millis = [seconds * 1e3 for seconds in _all(engine, "ttft")]
    yield from _histogram("nv_inference_first_response_histogram_ms", labels, _TRITON_MS, millis)


_WRITERS: dict[Dialect, Callable[[EngineModel, str], Iterable[str]]] = {
    Dialect.vllm: _vllm,
    Dialect.vllm_old: _vllm_old,
    Dialect.vllm_collector: _vllm_collector,
    Dialect.sglang: _sglang,
    Dialect.sglang_old: _sglang_old,
    Dialect.triton: _triton,
}


def _all(engine: EngineModel, phase: str) -> list[float]:
    return [seconds for _, seconds in engine.truth.durations[phase]]


def _one(name: str, kind: str, labels: Labels, value: float) -> Iterator[str]:
    yield f"# HELP {name} {name}."
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{_written(labels)}}} {float(value)!r}"


def _histogram(name: str, labels: Labels, edges: Iterable[float], seconds: list[float]) -> Iterator[str]:
    ordered = sorted(seconds)
    yield f"# HELP {name} {name}."
    yield f"# TYPE {name} histogram"
    for edge in edges:
        below = bisect_right(ordered, edge)
        yield f"{name}_bucket{{{_written({**labels, 'le': repr(float(edge))})}}} {float(below)!r}"
    yield f"{name}_bucket{{{_written({**labels, 'le': '+Inf'})}}} {float(len(ordered))!r}"
    yield f"{name}_count{{{_written(labels)}}} {float(len(ordered))!r}"
    yield f"{name}_sum{{{_written(labels)}}} {sum(ordered)!r}"


def _written(labels: Labels) -> str:
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
