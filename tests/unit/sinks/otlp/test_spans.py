# SPDX-License-Identifier: Apache-2.0
"""Spans of a finished request: ids, parents, times, attributes."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanKind, StatusCode
from support.kernel_rows import MS, SECOND, KernelRequest, Stage

from hotstage.sinks.otlp.requests import FinishedRequest
from hotstage.sinks.otlp.spans import SpanMaker, context_of

START, OFFSET = 1_000 * SECOND, 1_700_000_000 * SECOND
TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
GPU = {100: "GPU-a"}


def text(flags="01", version="00", trace=f"{TRACE:032x}", span=f"{PARENT:016x}", rest=""):
    return f"{version}-{trace}-{span}-{flags}{rest}".encode()


@pytest.fixture
def make():
    maker = SpanMaker(Resource({"service.name": "hotstage"}), "0.1.0")

    def build(row, traceparent=None, **changed):
        parent = context_of(row["traceparent"] if traceparent is None else traceparent)
        fields = {"trace_id": 77, "wall_offset_ns": OFFSET, "sampled_for": "baseline"} | changed
        return maker.make(FinishedRequest.of(row, GPU), parent, **fields)

    return build


def test_the_request_hangs_below_its_callers_span_and_its_stages_below_it(make, a_request):
    *stages, request = make(a_request())
    assert request.get_span_context().trace_id == TRACE
    assert request.parent.span_id == PARENT
    assert request.parent.is_remote
    assert [each.name for each in stages] == ["vision_encode", "llm_prefill"]
    for stage in stages:
        assert stage.get_span_context().trace_id == TRACE
        assert stage.parent.span_id == request.get_span_context().span_id
    assert len({each.get_span_context().span_id for each in (*stages, request)}) == 3
    assert {each.kind for each in (*stages, request)} == {SpanKind.INTERNAL}


def test_times_are_those_of_the_kernel_on_the_wall_clock(make, a_request):
    encode, prefill, request = make(a_request())
    at = START + OFFSET
    assert (request.start_time, request.end_time) == (at, at + 100 * MS)
    assert (encode.start_time, encode.end_time) == (at + 10 * MS, at + 40 * MS)
    assert (prefill.start_time, prefill.end_time) == (at + 45 * MS, at + 95 * MS)


def test_attributes_of_the_request(make, a_request):
    row = a_request(7)
    row["endpoint"] = b"/v1/chat/completions"
    row["launches"], row["errors"] = 48, 2
    assert dict(make(row, window_ids=("w-1",), sampled_for="window")[-1].attributes) == {
        "hotstage.endpoint": "/v1/chat/completions",
        "hotstage.instance": "i-0",
        "gen_ai.request.model": "vlm",
        "hw.id": "GPU-a",
        "hw.type": "gpu",
        "hotstage.request.id": "r-7",
        "hotstage.modality": "image",
        "hotstage.outcome": "ok",
        "process.pid": 100,
        "hotstage.launches": 48,
        "hotstage.call_errors": 2,
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 640,
        "gen_ai.usage.output_tokens": 12,
        "hotstage.ttft_ms": 95.0,
        "hotstage.ttft.basis": "prefill_end",
        "hotstage.wait.queue_ms": 15.0,
        "hotstage.wait.unmarked_ms": 5.0,
        "hotstage.trace.origin": "request",
        "hotstage.sampled_for": "window",
        "hotstage.window.ids": ("w-1",),
    }


def test_attributes_of_a_stage_carry_the_latency_by_modality_and_an_images_as_vision_too(make, a_request):
    assert dict(make(a_request())[0].attributes) == {
        "hotstage.endpoint": "/v1/chat",
        "hotstage.instance": "i-0",
        "gen_ai.request.model": "vlm",
        "hw.id": "GPU-a",
        "hw.type": "gpu",
        "hotstage.stage": "vision_encode",
        "hotstage.modality": "image",
        "latency.image.ms": 30.0,
        "latency.vision.ms": 30.0,
        "hotstage.critical_ms": 30.0,
        "hotstage.tokens": 576,
    }


def test_what_a_stages_threads_waited_for_is_told_as_far_as_it_is_known(make, a_request):
    row = a_request()
    slot = row["stages"][Stage.vision_encode]
    slot["sync_us"], slot["copy_us"], slot["alloc_us"] = 12_500, 250, 0
    assert {name: value for name, value in make(row)[0].attributes.items() if ".wait." in name} == {
        "hotstage.wait.sync_ms": 12.5,
        "hotstage.wait.copy_ms": 0.25,
        "hotstage.wait.alloc_ms": 0.0,
    }


def test_the_adapter_is_on_its_stage_and_on_the_request_and_tokens_tell_their_pace(make):
    kernel = KernelRequest(1, at_ns=START)
    kernel.row["lora_rank"], kernel.row["lora_module"] = 16, 3
    kernel.begin(Stage.lora_apply, START).end(Stage.lora_apply, START + 5 * MS)
    kernel.begin(Stage.llm_decode, START + 10 * MS).end(Stage.llm_decode, START + 90 * MS)
    apply, decode, request = make(kernel.finished(START + 90 * MS, output_tokens=5), traceparent=b"")
    for span in (apply, request):
        assert (span.attributes["hotstage.lora.rank"], span.attributes["hotstage.lora.module"]) == (
            16,
            "v_proj",
        )
    assert "hotstage.lora.rank" not in decode.attributes
    assert request.attributes["hotstage.ttft.basis"] == "decode_begin"
    assert (request.attributes["hotstage.ttft_ms"], request.attributes["hotstage.itl_ms"]) == (10.0, 20.0)
    assert request.attributes["hotstage.wait.delivery_ms"] == 5.0


def test_a_servers_own_stage_is_a_span_with_its_own_name():
    kernel = KernelRequest(1, at_ns=START, pid=7)
    kernel.row["own_stages"] = 33
    slot = kernel.row["stages"][18]
    slot["began_ns"], slot["total_ns"], slot["count"] = START, MS, 1
    row = kernel.finished(START + MS)
    maker = SpanMaker(Resource({"service.name": "hotstage"}), "0.1.0")
    for names, expected in (({(7, 33): "rerank"}, "rerank"), ({(8, 33): "rerank"}, "stage_33")):
        request = FinishedRequest.of(row, {}, names)
        span, _ = maker.make(request, None, trace_id=1, wall_offset_ns=0, sampled_for="baseline")
        assert (span.name, span.attributes["hotstage.stage"]) == (expected, expected)


def test_what_is_unknown_is_absent(make):
    kernel = KernelRequest(1, at_ns=START, pid=7, endpoint="", instance="")
    kernel.row["model"] = b""
    kernel.begin(Stage.tokenize, START).end(Stage.tokenize, START + MS)
    stage, request = make(kernel.finished(START + 2 * MS), traceparent=b"")
    assert request.name == "request"
    assert not {"hotstage.endpoint", "hotstage.instance", "hw.id", "gen_ai.request.model"} & set(
        request.attributes
    )
    assert not {"gen_ai.usage.output_tokens", "gen_ai.operation.name"} & set(request.attributes)
    assert "hotstage.tokens" not in stage.attributes


@pytest.mark.parametrize(
    "traceparent",
    [
        b"",
        b"nonsense",
        text(version="ff"),
        text(trace="0" * 32),
        text(span="0" * 16),
        text(rest="-more"),
        text().upper(),
        text()[:40],
        b"\xff" * 60,
    ],
)
def test_without_a_valid_traceparent_it_is_a_new_root_and_says_so(make, a_request, traceparent):
    *stages, request = make(a_request(), traceparent=traceparent)
    assert request.parent is None
    assert request.get_span_context().trace_id == 77
    assert request.attributes["hotstage.trace.origin"] == "hotstage"
    assert {each.get_span_context().trace_id for each in stages} == {77}


def test_a_later_version_of_traceparent_is_read_as_far_as_it_is_known():
    assert context_of(text(version="01", rest="-more")).trace_id == TRACE
    assert context_of(text(flags="00")).trace_flags.sampled is False


def test_a_stage_that_ran_several_times_is_a_point_with_its_sum_and_says_so(make):
    kernel = KernelRequest(1, at_ns=START)
    for begin in (10, 50):
        kernel.begin(Stage.llm_decode, START + begin * MS).end(Stage.llm_decode, START + (begin + 20) * MS)
    decode, _ = make(kernel.finished(START + 90 * MS), traceparent=b"")
    assert decode.start_time == decode.end_time == START + OFFSET + 50 * MS
    assert decode.attributes["hotstage.stage.runs"] == 2
    assert decode.attributes["hotstage.stage.interval"] == "last_begin_only"
    assert decode.attributes["latency.text.ms"] == 40.0


def test_a_stage_that_never_ended_has_no_span_and_is_named_by_its_request(make):
    kernel = KernelRequest(1, at_ns=START).begin(Stage.llm_decode, START + MS)
    (request,) = make(kernel.finished(START + 9 * MS, outcome=2), traceparent=b"")
    assert request.attributes["hotstage.stages.unended"] == ("llm_decode",)
    assert request.attributes["hotstage.outcome"] == "cancelled"
    assert request.status.status_code is StatusCode.UNSET


def test_a_request_that_failed_has_the_status_error(make, a_request):
    request = make(a_request(outcome=1))[-1]
    assert request.status.status_code is StatusCode.ERROR
    assert request.attributes["error.type"] == "_OTHER"
