# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from support.pulses import CHAT, I0, I1, MS, SECOND, VISION, pulse, request, span

from hotstage.config.settings import FrameConfig
from hotstage.frame import served as served_module
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.served import Served
from hotstage.stages.spans import OUTCOME_LOST
from hotstage.stages.stage import Modality, Stage

START = 1000 * SECOND
VISION_ROUTE = Entity(EntityKind.route, endpoint="/v1/vision", instance="i-0")
ENCODE = Entity(EntityKind.stage, stage="vision_encode", modality="image")


def ended(number, at_ns, seconds, **others):
    return request(number, at_ns - round(seconds * SECOND), ended_ns=at_ns, **others)


def cells(*pulses, now_ns, **config):
    served = Served(FrameConfig(**config))
    served.take(pulses)
    filled = {HOST: {}}
    served.fill(now_ns, filled)
    return filled


def test_a_route_has_its_rate_heat_and_nearest_rank_latency():
    seen = [pulse(START)]
    for number in range(1, 21):
        at = START + number * 500 * MS
        seen.append(pulse(at, requests_ended=[ended(number, at, 0.1 * number)]))
    cell = cells(*seen, now_ns=START + 10 * SECOND, heat_weights={"/v1/vision": 3.0})[VISION_ROUTE]
    assert cell["requests_ended"] == cell["latency_samples"] == 20
    assert cell["latency_p50_seconds"] == pytest.approx(1.0)
    assert cell["latency_p95_seconds"] == pytest.approx(1.9)
    assert cell["latency_p99_seconds"] == pytest.approx(2.0)
    assert cell["request_rate"] == pytest.approx(2.0)
    assert cell["endpoint_heat"] == pytest.approx(6.0)


def test_below_twenty_samples_a_quantile_is_unknown():
    seen = pulse(START, requests_ended=[ended(n, START, 1.0) for n in range(19)])
    cell = cells(seen, now_ns=START + SECOND)[VISION_ROUTE]
    assert math.isnan(cell["latency_p95_seconds"]) and cell["latency_samples"] == 19


def test_only_the_last_minute_counts():
    old = pulse(START, requests_ended=[ended(n, START, 9.0) for n in range(50)])
    new = pulse(START + 61 * SECOND, requests_ended=[ended(99, START + 61 * SECOND, 1.0)])
    cell = cells(old, new, now_ns=START + 61 * SECOND)[VISION_ROUTE]
    assert (cell["latency_samples"], cell["requests_ended"]) == (1, 51)


def test_what_is_in_flight_has_a_number_and_an_age():
    waiting = [request(1, START - 3 * SECOND), request(2, START, endpoint=CHAT, instance=I1)]
    filled = cells(pulse(START, requests_open=waiting), now_ns=START)
    assert (filled[HOST]["inflight"], filled[HOST]["oldest_age_seconds"]) == (2, 3.0)
    assert filled[VISION_ROUTE]["inflight"] == 1
    assert filled[Entity(EntityKind.instance, instance="i-1")]["oldest_age_seconds"] == 0.0


def test_errors_and_the_lost_are_a_share_of_those_that_should_have_ended_well():
    outcomes = [0, 0, 1, OUTCOME_LOST, 2, 3]
    seen = pulse(
        START, requests_ended=[ended(n, START, 1.0, outcome=each) for n, each in enumerate(outcomes)]
    )
    cell = cells(seen, now_ns=START)[HOST]
    assert cell["error_ratio"] == 0.5
    assert cell["latency_samples"] == 3, "cancelled, refused and lost requests have no latency"


def test_a_stage_has_what_ended_in_it_and_what_is_open():
    spans = [span(Stage.vision_encode, Modality.image, START, n * MS, request=n) for n in range(1, 41)]
    several = span(Stage.vision_encode, Modality.image, START, 60 * MS, request=77)
    several["count"] = 3
    stuck = span(Stage.vision_encode, Modality.image, START - SECOND, 0, is_open=True)
    seen = [pulse(START), pulse(START + 5 * SECOND, ended=[*spans, several], open_spans=[stuck])]
    cell = cells(*seen, now_ns=START + 5 * SECOND)[ENCODE]
    assert cell["requests_ended"] == 43
    assert cell["latency_p95_seconds"] == pytest.approx(0.038)
    assert (cell["inflight"], cell["oldest_age_seconds"]) == (1, 6.0)
    assert cell["stage_rate"] == pytest.approx(43 / 5)


def test_endpoints_beyond_the_limit_are_other():
    several = [ended(n, START, 1.0, endpoint=number) for n, number in enumerate((CHAT, CHAT + 1, CHAT + 1))]
    filled = cells(pulse(START, requests_ended=several), now_ns=START, max_endpoints=1)
    endpoints = {
        entity.endpoint: cell for entity, cell in filled.items() if entity.kind is EntityKind.endpoint
    }
    assert endpoints["other"]["requests_ended"] == 2


def test_the_modality_of_an_endpoint_is_that_of_most_of_its_requests():
    served = Served(FrameConfig())
    kinds = [Modality.image, Modality.image, Modality.text]
    done = [ended(n, START, 1.0, modality=kind) for n, kind in enumerate(kinds)]
    served.take([pulse(START, requests_ended=done)])
    assert served.endpoint_modality == {"/v1/vision": "image"}


def test_routes_are_told_apart_up_to_a_bound_and_the_others_are_one(monkeypatch):
    monkeypatch.setattr(served_module, "ROUTES_MAX", 2)
    pairs = [(VISION, I0), (CHAT, I0), (CHAT, I1), (VISION, I1), (VISION, I0)]
    done = [
        ended(n, START, 1.0, endpoint=endpoint, instance=instance)
        for n, (endpoint, instance) in enumerate(pairs)
    ]
    waiting = [request(9, START, endpoint=CHAT, instance=I1)]
    filled = cells(pulse(START, requests_ended=done, requests_open=waiting), now_ns=START + SECOND)
    routes = {
        (entity.endpoint, entity.instance): (cell["requests_ended"], cell["inflight"])
        for entity, cell in filled.items()
        if entity.kind is EntityKind.route
    }
    assert routes == {
        ("/v1/vision", "i-0"): (2, 0),
        ("/v1/chat", "i-0"): (1, 0),
        ("other", "other"): (2, 1),
    }
    assert filled[Entity(EntityKind.instance, instance="i-1")]["requests_ended"] == 2
