# SPDX-License-Identifier: Apache-2.0
"""What a finished row says, and what it does not."""

from __future__ import annotations

import pytest
from support.kernel_rows import MS, KernelRequest, Modality, Stage

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.sinks.otlp.requests import FinishedRequest, has_failed, key_of

START = 1_000_000_000_000
GPU = {100: "GPU-a"}


def test_a_row_becomes_a_request_with_its_stages_in_pipeline_order(a_request):
    request = FinishedRequest.of(a_request(7), GPU)
    assert (request.id, request.endpoint, request.instance, request.model) == (
        "r-7",
        "/v1/chat",
        "i-0",
        "vlm",
    )
    assert (request.modality, request.outcome, request.gpu_uuid) == ("image", "ok", "GPU-a")
    assert (request.started_ns, request.ended_ns) == (START, START + 100 * MS)
    assert [runs.stage for runs in request.stages] == ["vision_encode", "llm_prefill"]
    assert [runs.interval_ns for runs in request.stages] == [
        (START + 10 * MS, START + 40 * MS),
        (START + 45 * MS, START + 95 * MS),
    ]
    assert (request.input_tokens, request.output_tokens, request.spans) == (640, 12, 3)


def test_a_stage_that_ran_twice_has_a_sum_and_no_interval():
    kernel = KernelRequest(1, at_ns=START)
    for begin in (10, 50):
        kernel.begin(Stage.llm_decode, START + begin * MS).end(Stage.llm_decode, START + (begin + 20) * MS)
    (runs,) = FinishedRequest.of(kernel.finished(START + 90 * MS), {}).stages
    assert (runs.count, runs.total_ns, runs.began_ns) == (2, 40 * MS, START + 50 * MS)
    assert runs.interval_ns is None


def test_a_stage_that_was_open_at_the_end_has_no_interval_and_makes_no_span():
    kernel = KernelRequest(1, at_ns=START).begin(Stage.llm_decode, START + 10 * MS)
    request = FinishedRequest.of(kernel.finished(START + 90 * MS, outcome=2), {})
    (runs,) = request.stages
    assert (runs.is_open, runs.interval_ns, request.spans, request.outcome) == (True, None, 1, "cancelled")


def test_a_stage_that_ended_once_and_began_again_has_no_interval():
    kernel = KernelRequest(1, at_ns=START)
    kernel.begin(Stage.llm_decode, START + 10 * MS).end(Stage.llm_decode, START + 20 * MS)
    kernel.begin(Stage.llm_decode, START + 50 * MS)
    (runs,) = FinishedRequest.of(kernel.finished(START + 90 * MS), {}).stages
    assert (runs.count, runs.is_open, runs.interval_ns) == (1, True, None)


def test_hostile_names_are_cleaned_and_an_end_before_the_start_is_none(a_request):
    row = a_request()
    row["id"], row["endpoint"], row["ended_ns"] = b"a\nb\xff", b"/v1/\x1b[2J", START - 5
    request = FinishedRequest.of(row, {})
    assert (request.id, request.endpoint) == ("a_b_", "/v1/_[2J")
    assert request.ended_ns == request.started_ns


def stage(name=None, modality=None, **parts):
    return Entity(EntityKind.stage, stage=name, modality=modality, **parts)


@pytest.mark.parametrize(
    ("entity", "is_touched"),
    [
        (HOST, True),
        (stage("vision_encode", "image"), True),
        (stage("vision_encode", "video"), False),
        (stage("audio_encode", "audio"), False),
        (stage("vision_encode", "image", instance="i-1"), False),
        (stage("vision_encode", "image", instance="i-0", pid=100), True),
        (Entity(EntityKind.modality, modality="image"), True),
        (Entity(EntityKind.endpoint, endpoint="/v1/chat"), True),
        (Entity(EntityKind.endpoint, endpoint="/v1/video"), False),
        (Entity(EntityKind.instance, instance="i-0"), True),
        (Entity(EntityKind.route, endpoint="/v1/chat", instance="i-1"), False),
        (Entity(EntityKind.process, pid=101), False),
        (Entity(EntityKind.gpu, gpu_uuid="GPU-a", pci_bus_id="0000:01:00.0"), True),
        (Entity(EntityKind.gpu, gpu_uuid="GPU-b"), False),
        (Entity(EntityKind.gpu, pci_bus_id="0000:01:00.0"), False),
    ],
    ids=str,
)
def test_a_request_is_of_a_thing_if_every_part_of_it_is_its_own(a_request, entity, is_touched):
    assert FinishedRequest.of(a_request(), GPU).is_of(entity) is is_touched


def test_failed_is_an_error_of_its_own_or_of_a_cuda_call_in_it(a_request):
    assert not has_failed(a_request())
    assert has_failed(a_request(outcome=1))
    assert not has_failed(a_request(outcome=2)), "cancelled by its caller"
    row = a_request()
    row["errors"] = 1
    assert has_failed(row)


def test_the_key_is_of_one_request_even_if_its_id_is_used_again(a_request):
    assert key_of(a_request(1)) == key_of(a_request(1))
    assert len({key_of(a_request(1)), key_of(a_request(2)), key_of(a_request(1, at_ns=START + 1))}) == 3
    assert len(key_of(a_request(1))) == 16


def test_the_modality_of_the_request_is_that_of_the_encoders_it_went_through():
    kernel = KernelRequest(1, at_ns=START)
    for stage_id in (Stage.vision_encode, Stage.audio_encode):
        kernel.begin(stage_id, START, modality=Modality.image).end(stage_id, START + MS)
    assert FinishedRequest.of(kernel.finished(START + 9 * MS), {}).modality == "mixed"
