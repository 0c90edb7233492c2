# SPDX-License-Identifier: Apache-2.0
"""The server's line on a GPU that takes no time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise

import pytest

from hotstage.simhost import pipeline, service
from hotstage.simhost.annotations import Silence
from hotstage.simhost.gpu import GpuError
from hotstage.simhost.workload import ENDPOINTS, Arrival
from hotstage.stages.stage import Modality


class InstantGpu:
    """Does every piece of work at once; may be told to fail or to hang."""

    def __init__(self):
        self.is_out_of_memory = False
        self.may_return = threading.Event()
        self.may_return.set()
        self.runs = 0

    def open(self, *, weight_bytes, graph_nodes):
        pass

    def open_thread(self):
        pass

    def run(self, work, factor):
        self.runs += 1
        if self.is_out_of_memory:
            raise GpuError("gpu_stage", 2)
        self.may_return.wait(10)

    def decode(self, modality, *, steps, step_seconds, launches):
        self.runs += 1
        self.may_return.wait(10)


@pytest.fixture
def gpu():
    gpu = InstantGpu()
    yield gpu
    gpu.may_return.set()


@pytest.fixture(params=[False, True], ids=["workers of a stage", "a pool"])
def line(gpu, request):
    line = pipeline.Pipeline(
        instance="i-0",
        model="m",
        seed=1,
        calls_scale=1.0,
        gpu=gpu,
        slowdown=lambda stage, modality: 0.01,
        annotations=Silence(),
        has_pool=request.param,
    )
    line.start()
    yield line
    line.halt()


def arrival(number, modality=Modality.image):
    endpoint = next(endpoint.path for endpoint in ENDPOINTS if endpoint.modality is modality)
    return Arrival(0.0, number, f"r-{number}", endpoint, modality, 0, 10, 10, 10, 1000)


def wait_until(condition, what):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, f"waited 5 s for {what}"
        time.sleep(0.005)


@pytest.mark.parametrize("modality", service.ROUTES)
def test_a_request_passes_every_stage_of_its_route_in_order(line, modality):
    line.take(arrival(1, modality))
    wait_until(lambda: line.ledger.finished == 1, "the request")
    spans = sorted(line.ledger.spans, key=lambda span: span.began_ns)
    assert [span.stage for span in spans] == [stage.name for stage in service.ROUTES[modality]]
    assert {(span.request, span.modality, span.instance) for span in spans} == {("r-1", modality.name, "i-0")}
    for span, following in pairwise(spans):
        assert span.began_ns <= span.ended_ns <= following.began_ns


def test_all_requests_are_answered_once(line):
    modalities = list(service.ROUTES)
    for number in range(40):
        line.take(arrival(number, modalities[number % len(modalities)]))
    wait_until(lambda: line.ledger.finished == 40, "40 requests")
    assert (line.ledger.started, line.ledger.open, line.ledger.failed) == (40, 0, 0)
    per_stage = Counter((span.request, span.stage) for span in line.ledger.spans)
    assert set(per_stage.values()) == {1}


def test_a_failed_allocation_fails_the_request_at_that_stage(line, gpu):
    gpu.is_out_of_memory = True
    line.take(arrival(1))
    wait_until(lambda: line.ledger.finished == 1, "the failed request")
    assert line.ledger.failed == 1
    assert max(line.ledger.spans, key=lambda span: span.ended_ns).stage == "vision_encode"


def test_more_than_an_instance_can_hold_is_refused(line, gpu, monkeypatch):
    monkeypatch.setattr(pipeline, "MAX_OPEN", 3)
    gpu.may_return.clear()
    for number in range(5):
        line.take(arrival(number))
    assert (line.ledger.started, line.ledger.refused) == (3, 2)


def test_nothing_begins_after_a_halt(line, gpu, request):
    has_pool = request.node.callspec.params["line"]
    gpu.may_return.clear()
    for number in range(12):
        line.take(arrival(number))
    at_work = 12 if has_pool else service.WORKERS[service.Stage.vision_encode]
    wait_until(lambda: gpu.runs == at_work, "all encoders at work")
    line.halt()
    runs = gpu.runs
    gpu.may_return.set()
    time.sleep(0.1)
    assert gpu.runs == runs
    assert line.ledger.finished == 0
