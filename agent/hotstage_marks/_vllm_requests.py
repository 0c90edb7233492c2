# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler as marks: each request's arrival, queue, prefill, decode, tokens and end.

Runs in the engine's process, inside the hooks of `Scheduler`. It reads attributes that vLLM has had since
0.8.5 (see README) and writes none. What a request goes through:

    add_request          the request begins, and its `queue`
    schedule             `queue` ends; `llm_prefill` begins, unless this step runs the request's encoder
                         first: then the worker begins it when the encoder is done
    update_from_output   with the first token `llm_prefill` ends and `llm_decode` begins; `tokens` then and at
                         most every 100 ms
    _preempt_request     back into `queue`
    _free_request        all ends, with the outcome and the number of output tokens
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import hotstage_marks as marks
from hotstage_marks._hooks import Memory

MAX_REQUESTS = 65536
"""Requests remembered at once; more are not marked."""

PROGRESS_SECONDS = 0.1

_ENDPOINTS = {  # by the prefix that vLLM's API server gives its ids
    "chatcmpl": "/v1/chat/completions",
    "cmpl": "/v1/completions",
    "embd": "/v1/embeddings",
    "score": "/score",
    "rerank": "/rerank",
    "transcribe": "/v1/audio/transcriptions",
    "translate": "/v1/audio/translations",
    "resp": "/v1/responses",
}
_MODALITIES = {
    "image": "image",
    "audio": "audio",
    "video": "video",
    "vision_chunk": "image",
    "prompt_embeds": "text",
}
_OUTCOMES = {"FINISHED_ABORTED": "cancelled", "FINISHED_IGNORED": "refused", "FINISHED_ERROR": "error"}


def argument(args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Any:
    """The method's first argument, however it was passed."""
    return args[0] if args else kwargs[name]


def modality_of(items: Any) -> str:
    """One word for what a request or a batch holds: its only modality, `mixed`, or `text` for none."""
    kinds = set(items)
    return "text" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed"


def input_modalities(request: Any) -> list[str]:
    """The modality of each multimodal input, in order; [] for text. Reads the newest attribute there is."""
    for attribute in ("mm_features", "mm_kwargs"):
        items = getattr(request, attribute, None)
        if items is not None:
            return [modality_named(item.modality) for item in items]
    inputs = getattr(request, "mm_inputs", None) or ()
    return [modality_of(map(modality_named, item.modalities)) for item in inputs]


def modality_named(name: str) -> str:
    """The modality that vLLM calls so; `unknown` for one that it has made up since."""
    return _MODALITIES.get(name, "unknown")


class _Tracked:
    """One request: where it is, and what is still open."""

    __slots__ = ("handed", "is_prefill_open", "modality", "phase", "prefill_tokens", "request", "seen_tokens")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.modality = modality_of(input_modalities(request))
        self.phase = "queue"
        self.is_prefill_open = False
        self.handed = 0  # prefills that the worker begins and we end
        self.prefill_tokens = 0
        self.seen_tokens = 0  # output tokens when the prefill began: a preempted request has some


class RequestBook(Memory):
    """The requests that were begun while somebody watched, by id."""

    def __init__(self) -> None:
        self._tracked: dict[str, _Tracked] = {}
        self._next_progress = 0.0
        self.skipped = 0

    def forget(self) -> None:
        self._tracked.clear()
        self.is_empty = True

    def added(self, scheduler: Any, args: Sequence[Any], kwargs: dict[str, Any], _: Any, __: Any) -> None:
        request = argument(args, kwargs, "request")
        rid = request.request_id
        if rid in self._tracked:  # a session's next input
            return
        if len(self._tracked) >= MAX_REQUESTS:
            self.skipped += 1
            return
        tracked = self._tracked[rid] = _Tracked(request)
        self.is_empty = False
        marks.request_begin(
            rid,
            endpoint=_ENDPOINTS.get(rid.replace("_", "-").partition("-")[0], ""),
            instance=instance_of(scheduler),
            model=model_of(scheduler),
            traceparent=(getattr(request, "trace_headers", None) or {}).get("traceparent", ""),
        )
        marks.span_begin("queue", modality=tracked.modality, request=rid)

    def scheduled(self, _: Any, __: Any, ___: Any, ____: Any, output: Any) -> None:
        encoding = output.scheduled_encoder_inputs
        for rid, count in output.num_scheduled_tokens.items():
            tracked = self._tracked.get(rid)
            if tracked is None or tracked.phase == "decode":
                continue
            if tracked.phase == "queue":
                marks.span_end("queue", modality=tracked.modality, request=rid)
                tracked.phase = "prefill"
                tracked.seen_tokens = tracked.request.num_output_tokens
            tracked.prefill_tokens += count
            if rid in encoding:
                self._end_prefill(rid, tracked)
                tracked.handed += 1
            elif not tracked.is_prefill_open:
                marks.span_begin("llm_prefill", modality=tracked.modality, request=rid)
                tracked.is_prefill_open = True

    def updated(self, _: Any, args: Sequence[Any], kwargs: dict[str, Any], __: Any, ___: Any) -> None:
        output = argument(args, kwargs, "scheduler_output")
        now = time.monotonic()
        is_progress_due = now >= self._next_progress
        if is_progress_due:
            self._next_progress = now + PROGRESS_SECONDS
        for rid in output.num_scheduled_tokens:
            tracked = self._tracked.get(rid)
            if tracked is None:
                continue
            if tracked.handed and rid in output.scheduled_encoder_inputs:
                self._end_handed(rid, tracked)
            count = tracked.request.num_output_tokens
            is_first = tracked.phase == "prefill" and count > tracked.seen_tokens
            if is_first:
                self._end_prefill(rid, tracked)
                tracked.phase = "decode"
                marks.span_begin("llm_decode", modality=tracked.modality, request=rid)
            if count and (is_first or is_progress_due):
                marks.tokens(count, request=rid)

    def preempted(self, _: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        rid = argument(args, kwargs, "request").request_id
        tracked = self._tracked.get(rid)
        if tracked is None or tracked.phase == "queue":
            return
        self._end_open(rid, tracked)
        tracked.phase = "queue"
        marks.span_begin("queue", modality=tracked.modality, request=rid)

    def freed(self, _: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        request = argument(args, kwargs, "request")
        rid = request.request_id
        tracked = self._tracked.pop(rid, None)
        self.is_empty = not self._tracked
        if tracked is None:
            return
        self._end_open(rid, tracked)
        status = getattr(request.status, "name", "")
        marks.request_end(rid, outcome=_OUTCOMES.get(status, "ok"), output_tokens=request.num_output_tokens)

    def _end_open(self, rid: str, tracked: _Tracked) -> None:
        if tracked.phase == "queue":
            marks.span_end("queue", modality=tracked.modality, request=rid)
        while tracked.handed:
            self._end_handed(rid, tracked)
        self._end_prefill(rid, tracked)
        if tracked.phase == "decode":
            count = tracked.request.num_output_tokens
            marks.span_end("llm_decode", modality=tracked.modality, tokens=count, request=rid)

    def _end_prefill(self, rid: str, tracked: _Tracked) -> None:
        if tracked.is_prefill_open:
            tracked.is_prefill_open = False
            self._say_prefill_ended(rid, tracked)

    def _end_handed(self, rid: str, tracked: _Tracked) -> None:
        tracked.handed -= 1
        self._say_prefill_ended(rid, tracked)

    def _say_prefill_ended(self, rid: str, tracked: _Tracked) -> None:
        count, tracked.prefill_tokens = tracked.prefill_tokens, 0
        marks.span_end("llm_prefill", modality=tracked.modality, tokens=count, request=rid)


def instance_of(scheduler: Any) -> str:
    """What the operator named it, else which of several data-parallel engines it is, else ''."""
    named = os.environ.get("HOTSTAGE_INSTANCE", "")
    parallel = getattr(getattr(scheduler, "vllm_config", None), "parallel_config", None)
    if named or getattr(parallel, "data_parallel_size", 1) <= 1:
        return named
    return f"dp{getattr(parallel, 'data_parallel_rank', 0)}"


def model_of(scheduler: Any) -> str:
    """The name under which the model is served, else its path, else ''."""
    model = getattr(getattr(scheduler, "vllm_config", None), "model_config", None)
    served = getattr(model, "served_model_name", None)
    if isinstance(served, (list, tuple)):
        served = served[0] if served else None
    return str(served or getattr(model, "model", None) or "")
