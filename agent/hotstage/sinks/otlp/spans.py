# SPDX-License-Identifier: Apache-2.0
"""A finished request → its span and those of its stages, with the times that the kernel saw.

Parented under the request's own traceparent; made by the tracer, so that limits and ids are OpenTelemetry's.
The kind is INTERNAL: the server's own SERVER span, if it makes one, stays the only one of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hotstage.sinks.otlp import attributes as names
from hotstage.sinks.otlp.requests import FinishedRequest, StageRuns
from hotstage.stages.stage import Stage
from hotstage.text import clean_name

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.util.types import AttributeValue

_OPERATIONS = {
    "/chat/completions": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}
"""End of an OpenAI-style route → its `gen_ai.operation.name`."""

Values = Mapping[str, "AttributeValue"]


def context_of(traceparent: bytes) -> SpanContext | None:
    """The caller's span; None without a valid traceparent."""
    text = clean_name(traceparent)
    if not text:
        return None
    found = get_current_span(_PROPAGATOR.extract({"traceparent": text}, Context())).get_span_context()
    return found if found.is_valid else None


class SpanMaker:
    """Makes spans; they are the caller's to export. Not thread-safe."""

    def __init__(self, resource: Resource, version: str) -> None:
        self._ids = _RootIds()
        self._ended = _Ended()
        provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False, id_generator=self._ids
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("hotstage", version, schema_url=names.SCHEMA_URL)

    def make(
        self,
        request: FinishedRequest,
        parent: SpanContext | None,
        *,
        trace_id: int,
        wall_offset_ns: int,
        sampled_for: str,
        window_ids: tuple[str, ...] = (),
    ) -> list[ReadableSpan]:
        """Stages first, their request last. `trace_id` is the new root's where there is no parent."""
        self._ids.trace_id = trace_id
        own = self._tracer.start_span(
            request.endpoint or "request",
            context=_context(parent),
            kind=SpanKind.INTERNAL,
            attributes={
                **_common(request),
                **_of_request(request),
                names.TRACE_ORIGIN: names.ORIGIN_HOTSTAGE if parent is None else names.ORIGIN_REQUEST,
                names.SAMPLED_FOR: sampled_for,
                **({names.WINDOW_IDS: window_ids} if window_ids else {}),
            },
            start_time=request.started_ns + wall_offset_ns,
        )
        if request.outcome == "error":
            own.set_status(StatusCode.ERROR)
            own.set_attribute(names.ERROR_TYPE, names.ERROR_OTHER)
        below = set_span_in_context(own, Context())
        for runs in request.stages:
            if runs.count:
                self._make_stage(request, runs, below, wall_offset_ns)
        own.end(request.ended_ns + wall_offset_ns)
        return self._ended.take()

    def _make_stage(
        self, request: FinishedRequest, runs: StageRuns, below: Context, wall_offset_ns: int
    ) -> None:
        began_ns, ended_ns = runs.interval_ns or (runs.began_ns, runs.began_ns)
        span = self._tracer.start_span(
            runs.stage,
            context=below,
            kind=SpanKind.INTERNAL,
            attributes={**_common(request), **_of_stage(request, runs)},
            start_time=began_ns + wall_offset_ns,
        )
        span.end(ended_ns + wall_offset_ns)


class _RootIds(RandomIdGenerator):
    """Random span ids; the trace id of a new root is the one that was sampled by."""

    trace_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id or super().generate_trace_id()


class _Ended(SpanProcessor):
    """Keeps what has ended until it is taken."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: only ended spans count."""

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans


_PROPAGATOR = TraceContextTextMapPropagator()


def _context(parent: SpanContext | None) -> Context:
    return Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context())


def _common(request: FinishedRequest) -> Values:
    """On the request and on each stage, so that either can be searched by itself."""
    said = {
        names.ENDPOINT: request.endpoint,
        names.INSTANCE: request.instance,
        names.GEN_AI_REQUEST_MODEL: request.model,
    }
    found: dict[str, AttributeValue] = {name: text for name, text in said.items() if text}
    if request.gpu_uuid:
        found |= {names.HW_ID: request.gpu_uuid, names.HW_TYPE: "gpu"}
    return found


def _of_request(request: FinishedRequest) -> Values:
    found: dict[str, AttributeValue] = {
        names.REQUEST_ID: request.id,
        names.MODALITY: request.modality,
        names.OUTCOME: request.outcome,
        names.PROCESS_PID: request.pid,
        names.LAUNCHES: request.launches,
        names.CALL_ERRORS: request.call_errors,
    }
    operation = next((name for end, name in _OPERATIONS.items() if request.endpoint.endswith(end)), None)
    unended = [runs.stage for runs in request.stages if runs.is_open]
    maybe: dict[str, AttributeValue | None] = {
        names.GEN_AI_OPERATION_NAME: operation,
        names.GEN_AI_INPUT_TOKENS: request.input_tokens,
        names.GEN_AI_OUTPUT_TOKENS: request.output_tokens or None,
        names.STAGES_UNENDED: unended or None,
        names.TTFT_MS: _milliseconds(request.ttft_seconds),
        names.TTFT_BASIS: request.ttft_basis,
        names.ITL_MS: _milliseconds(request.itl_seconds),
        **_of_adapter(request),
    }
    found |= _of_waits(request.waits)
    return found | {name: value for name, value in maybe.items() if value is not None}


def _of_adapter(request: FinishedRequest) -> dict[str, AttributeValue | None]:
    return {names.LORA_RANK: request.lora_rank, names.LORA_MODULE: request.lora_module}


def _of_waits(waits: tuple[tuple[str, float], ...]) -> dict[str, AttributeValue]:
    return {names.wait_ms(name): seconds * 1e3 for name, seconds in waits}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _of_stage(request: FinishedRequest, runs: StageRuns) -> Values:
    found: dict[str, AttributeValue] = {names.STAGE: runs.stage, names.MODALITY: runs.modality}
    found |= names.latencies(runs.modality, runs.total_ns / 1e6)
    found[names.CRITICAL_MS] = runs.critical_ns / 1e6
    found |= _of_waits(runs.waits)
    if runs.stage == Stage.lora_apply.name:
        found |= {name: value for name, value in _of_adapter(request).items() if value is not None}
    if runs.tokens:
        found[names.TOKENS] = runs.tokens
    if runs.interval_ns is None:
        found |= {names.STAGE_RUNS: runs.count, names.STAGE_INTERVAL: names.LAST_BEGIN_ONLY}
    return found
