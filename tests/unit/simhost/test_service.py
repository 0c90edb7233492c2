# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from hotstage.simhost import service
from hotstage.simhost.workload import ENDPOINTS, Arrival
from hotstage.stages.stage import Modality, Stage

IMAGE = Arrival(
    at_seconds=0.0,
    number=0,
    id="req-1-000000",
    endpoint="/v1/vision",
    modality=Modality.image,
    instance=0,
    media_tokens=1000,
    text_tokens=100,
    output_tokens=50,
    media_bytes=2_352_000,
)


def test_every_endpoint_has_a_route_from_one_queue_to_the_answer():
    for endpoint in ENDPOINTS:
        route = service.ROUTES[endpoint.modality]
        assert route.count(Stage.queue) == 1
        assert route[-3:] == (Stage.llm_prefill, Stage.llm_decode, Stage.detokenize)
        assert all(
            stage in service.COSTS and stage in service.WORKERS
            for stage in route
            if stage not in (Stage.queue, Stage.llm_decode)
        )


def test_tokens_are_those_the_stage_works_on():
    tokens = {stage: service.tokens_of(IMAGE, stage) for stage in service.ROUTES[Modality.image]}
    assert tokens[Stage.vision_encode] == tokens[Stage.media_fetch] == 1000
    assert tokens[Stage.tokenize] == 100
    assert tokens[Stage.llm_prefill] == tokens[Stage.queue] == 1100
    assert tokens[Stage.llm_decode] == tokens[Stage.detokenize] == 50


def test_time_grows_with_tokens_and_has_modest_noise():
    seconds = [
        service.work_of(replace(IMAGE, number=number), Stage.vision_encode, seed=1).seconds
        for number in range(400)
    ]
    assert statistics.median(seconds) == pytest.approx(0.030 + 1000 * 80e-6, rel=0.03)
    assert max(seconds) / min(seconds) < 3.5
    small = service.work_of(replace(IMAGE, media_tokens=100), Stage.vision_encode, seed=1)
    large = service.work_of(IMAGE, Stage.vision_encode, seed=1)
    assert large.seconds / small.seconds == pytest.approx(0.110 / 0.038)


def test_more_calls_do_not_take_more_time():
    one = service.work_of(IMAGE, Stage.llm_prefill, seed=1)
    ten = service.work_of(IMAGE, Stage.llm_prefill, seed=1, calls_scale=10)
    assert (one.launches, ten.launches) == (64, 640)
    assert one.seconds == ten.seconds


def test_workers_suffice_for_the_ramp_and_for_a_stalled_encoder():
    per_instance = {endpoint.modality: endpoint.requests_per_second / 2 for endpoint in ENDPOINTS}
    encoding = service.COSTS[Stage.vision_encode]
    seconds = encoding.base_seconds + 500 * encoding.token_seconds
    assert per_instance[Modality.image] * 2.5 * seconds < service.WORKERS[Stage.vision_encode] / 4
    assert per_instance[Modality.image] * 10 * seconds < service.WORKERS[Stage.vision_encode] / 2


def test_a_decode_step_grows_a_little_with_the_batch():
    assert 1.0 < service.decode_step_seconds(8) / service.decode_step_seconds(1) < 1.1
