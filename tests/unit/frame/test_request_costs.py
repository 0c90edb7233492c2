# SPDX-License-Identifier: Apache-2.0
"""Costs by endpoint and instance, and penalties, as the slow tick has them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage
from support.pulses import pulse, request

from hotstage.config.classes import ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.request_statistics import PENALTY_NS, RequestStatistics
from hotstage.frame.served import Served
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.spans import OUTCOME_CANCELLED

START = 1000 * SECOND
CHAT = Entity(EntityKind.endpoint, endpoint="/v1/chat")
VISION = Entity(EntityKind.endpoint, endpoint="/v1/vision")
I0, I1 = (Entity(EntityKind.instance, instance=name) for name in ("i-0", "i-1"))
CHAT_ON_I1 = Entity(EntityKind.route, endpoint="/v1/chat", instance="i-1")


def ended(seconds, *, modality=Modality.text, tokens=100, endpoint="/v1/chat", instance="i-0", outcome=0):
    took = round(seconds * SECOND)
    one = KernelRequest(took, at_ns=START - took, endpoint=endpoint, instance=instance)
    one.begin(Stage.llm_prefill, START - took, modality=modality, tokens=tokens)
    one.end(Stage.llm_prefill, START - took // 2)
    return one.finished(START, outcome)


def kept(rows, frame=None, **config):
    found = RequestStatistics(ClassesConfig(**config), frame or FrameConfig())
    found.keep(START, np.array(rows, FINISHED_DTYPE))
    return found


def test_a_token_equivalent_costs_latency_over_tokens_by_endpoint_instance_route_and_host():
    rows = [
        ended(1.0, tokens=100),
        ended(3.0, tokens=300, instance="i-1"),
        ended(8.0, tokens=100, endpoint="/v1/vision", instance="i-1"),
        ended(50.0, tokens=0),  # nobody said
        ended(70.0, tokens=900, outcome=OUTCOME_CANCELLED),
    ]
    found = kept(rows).costs(START).by_entity
    assert {entity: cost.seconds_each for entity, cost in found.items()} == pytest.approx(
        {
            CHAT: 4 / 400,
            VISION: 8 / 100,
            I0: 1 / 100,
            I1: 11 / 400,
            HOST: 12 / 500,
            CHAT_ON_I1: 3 / 300,
            Entity(EntityKind.route, endpoint="/v1/chat", instance="i-0"): 1 / 100,
            Entity(EntityKind.route, endpoint="/v1/vision", instance="i-1"): 8 / 100,
        }
    )
    assert found[CHAT].equivalents_each == 200.0


def test_weights_of_tokens_are_the_configurations():
    found = kept([ended(1.0, tokens=100)], token_weights={"text": 4.0}).costs(START).by_entity
    assert found[CHAT].seconds_each == pytest.approx(1 / 400)


def test_a_penalty_is_the_largest_of_an_endpoints_classes_and_of_a_modalitys():
    rows = [ended(0.6) for _ in range(20)]
    rows += [ended(1.5, modality=Modality.image) for _ in range(20)]
    rows += [ended(2.5, modality=Modality.image, endpoint="/v1/vision") for _ in range(20)]
    penalties = kept(rows).costs(START).penalties
    assert penalties.by_endpoint == pytest.approx({"/v1/chat": 0.3 * 1.0, "/v1/vision": 0.3 * 2.0})
    # The p99 of all images together is 2.5 s.
    assert penalties.by_modality == pytest.approx({"text": 0.1 * 0.5, "image": 0.3 * 2.0})


def test_an_endpoint_may_have_a_baseline_and_a_factor_of_its_own():
    rows = [ended(2.5, modality=Modality.image, endpoint=name) for name in ("/v1/chat", "/v1/vision")] * 20
    found = kept(
        rows, endpoint_slo_baseline_seconds={"/v1/chat": 2.0}, endpoint_slo_weights={"/v1/vision": 2.0}
    )
    table = found.classes(START)
    assert {row.endpoint: row.slo_penalty_ms for row in table.endpoints} == pytest.approx(
        {"/v1/chat": 0.3 * 500, "/v1/vision": 2 * 0.3 * 2000}
    )
    assert table.fingerprints[0].slo_penalty_ms == pytest.approx(0.3 * 2000), "the class keeps its own"


def test_below_twenty_samples_an_endpoint_has_no_penalty():
    assert kept([ended(9.0) for _ in range(19)]).costs(START).penalties.by_endpoint == {}


def test_penalties_are_looked_at_again_after_their_time_and_costs_every_second():
    found = kept([ended(0.6) for _ in range(20)])
    assert found.costs(START).penalties.by_endpoint == pytest.approx({"/v1/chat": 0.05})
    found.keep(START + SECOND, np.array([ended(1.1) for _ in range(20)], FINISHED_DTYPE))
    soon = found.costs(START + SECOND)
    assert soon.by_entity[CHAT].requests == 40
    assert soon.penalties.by_endpoint == pytest.approx({"/v1/chat": 0.05})
    later = found.costs(START + PENALTY_NS)
    assert later.penalties.by_endpoint == pytest.approx({"/v1/chat": 0.1})


def test_what_left_the_window_costs_nothing_more():
    found = kept([ended(0.6) for _ in range(20)])
    assert found.costs(START + 61 * SECOND).by_entity == {}


def test_the_tick_does_not_wait_for_a_reader_and_has_the_costs_of_before():
    found = kept([ended(1.0)])
    before = found.costs(START)
    held, go_on = threading.Event(), threading.Event()

    def read():
        with found._lock:
            held.set()
            go_on.wait(10)

    reader = threading.Thread(target=read)
    reader.start()
    assert held.wait(10), "the reader"
    found.keep(START + SECOND, np.array([ended(9.0)], FINISHED_DTYPE))
    assert found.costs(START + SECOND) is before
    go_on.set()
    reader.join(10)
    assert found.costs(START + SECOND).by_entity[CHAT].requests == 2


def test_endpoints_without_end_are_other_and_stay_bounded():
    rows = [ended(1.0, endpoint=f"/v1/{number}") for number in range(300)]
    table = kept(rows, FrameConfig(max_endpoints=10)).classes(START)
    assert len(table.endpoints) == 11
    assert sum(row.requests for row in table.endpoints) == 300
    assert next(row.requests for row in table.endpoints if row.endpoint == "other") == 290


def test_an_endpoint_that_nobody_named_is_unknown():
    found = kept([ended(1.0, endpoint="", instance="")])
    assert [row.endpoint for row in found.classes(START).endpoints] == ["unknown"]
    assert Entity(EntityKind.route, endpoint="unknown", instance="unknown") in found.costs(START).by_entity


def test_the_frame_has_both_columns_of_the_endpoints_it_knows():
    rows = [ended(0.6, tokens=100) for _ in range(20)] + [ended(0.6, endpoint="/v1/elsewhere")]
    costs = kept(rows).costs(START)
    served = Served(FrameConfig(heat_weight="token_equivalents"))
    done = [request(n, START - 600 * MS, ended_ns=START, endpoint=2) for n in range(20)]
    seen = pulse(START, requests_ended=done)
    name = seen.names.endpoints[2]
    own = RequestStatistics(ClassesConfig(), FrameConfig())
    own.keep(START, np.array([ended(0.6, tokens=100, endpoint=name) for _ in range(20)], FINISHED_DTYPE))
    served.take([seen])
    cells = {HOST: {}}
    served.fill(START, cells, own.costs(START))
    cell = cells[Entity(EntityKind.endpoint, endpoint=name)]
    assert cell["token_equivalent_latency_seconds"] == pytest.approx(0.6 / 100)
    assert cell["slo_penalty_seconds"] == pytest.approx(0.05)
    assert cells[HOST]["token_equivalent_latency_seconds"] == pytest.approx(0.6 / 100)
    assert cell["endpoint_heat"] == pytest.approx(cell["request_rate"] * 100)
    served.fill(START, cells, costs)
    assert all(entity.endpoint != "/v1/elsewhere" for entity in cells)
