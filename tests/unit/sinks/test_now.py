# SPDX-License-Identifier: Apache-2.0
"""Gauges of the last tick; what is unknown has no series."""

from __future__ import annotations

import numpy as np

from hotstage.api import documents
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.now import gauges
from hotstage.windows.window import WindowUpdate

ENDPOINT = Entity(EntityKind.endpoint, endpoint="/v1/chat")
INSTANCE = Entity(EntityKind.instance, instance="i-0")
ENCODER = Entity(EntityKind.stage, stage="vision_encode", modality="image")
DECODER = Entity(EntityKind.stage, stage="llm_decode", modality="text")


def test_open_stages_are_counted_by_stage_modality_model_and_gpu(a_tick, a_pulse):
    pulse = a_pulse(
        open_stages=[("vision_encode", "image", 7), ("vision_encode", "image", 7), ("queue", "text", 8)]
    )
    found = gauges(a_tick(pulse=pulse, gpu_of_pid={7: "GPU-a"}))[metrics.STAGE_INFLIGHT]
    assert sorted(found) == [
        (("queue", "text", "vlm", ""), 1.0),
        (("vision_encode", "image", "vlm", "GPU-a"), 2.0),
    ]


def test_the_frame_becomes_endpoint_and_instance_gauges_and_nan_is_absent(a_tick, a_frame):
    frame = a_frame(
        {
            HOST: {"unattributed_ratio": 0.25},
            ENDPOINT: {"endpoint_heat": 4.0},
            INSTANCE: {"load_ratio": 0.5},
        },
        stale=["devices"],
    )
    found = gauges(a_tick(frame=frame, endpoint_modality={"/v1/chat": "image"}))
    assert found[metrics.ENDPOINT_HEAT] == [(("/v1/chat", "image"), 4.0)]
    assert found[metrics.ENDPOINT_P95] == []
    assert found[metrics.INSTANCE_LOAD] == [(("i-0",), 0.5)]
    assert found[metrics.INSTANCE_DEVIATION] == []
    assert found[metrics.UNATTRIBUTED] == [((), 0.25)]
    assert dict(found[self_metrics.COLLECTOR_UP]) == {
        ("requests",): 1.0,
        ("calls",): 1.0,
        ("host",): 1.0,
        ("devices",): 0.0,
    }


def test_a_stage_is_idle_active_or_stalled(a_tick, a_frame, make):
    frame = a_frame({ENCODER: {"inflight": 3}, DECODER: {"inflight": 0}})

    def states(**changed):
        found = gauges(a_tick(frame=frame, **changed))[metrics.STAGE_STATE]
        return {labels[0]: labels[2] for labels, value in found if value}

    assert states() == {"vision_encode": "active", "llm_decode": "idle"}
    stalled = WindowUpdate(open=(make.window(),))
    assert states(windows=stalled) == {"vision_encode": "stalled", "llm_decode": "idle"}


def test_open_windows_are_counted_with_their_highest_score(a_tick, make):
    update = WindowUpdate(open=(make.window("a", score=2.0), make.window("b", score=7.0)))
    found = gauges(a_tick(windows=update))
    labels = ("stage_latency", "warning", "vision_encode")
    assert found[metrics.WINDOW_ACTIVE] == [(labels, 2.0)]
    assert found[metrics.WINDOW_SCORE] == [(labels, 7.0)]


def test_a_breaker_is_one_hot_and_dated_on_the_wall_clock(a_tick, make):
    found = gauges(a_tick(breakers=(make.breaker("host", enforced=True),)))
    hot = {labels[1] for labels, value in found[metrics.BREAKER_STATE] if value}
    assert hot == {"open"}
    assert len(found[metrics.BREAKER_STATE]) == 6
    assert found[metrics.BREAKER_ENFORCED] == [(("host",), 1.0)]
    assert found[metrics.BREAKER_LAST] == [(("host",), 1_000.000007)]


def test_gpus_are_named_while_their_sample_is_fresh(a_tick):
    rows = np.zeros(1, DEVICE_DTYPE)
    rows["uuid"], rows["name"], rows["pci_bus_id"] = b"GPU-a", b"H200", b"0000:01:00.0"
    rows["event_reasons"] = 0x40
    sample = DeviceSample(1, DevicesState.sampling, "", rows, driver="580.1", is_fresh=True)
    found = gauges(a_tick(devices=sample))
    assert found[metrics.GPU_INFO] == [(("GPU-a", "0", "H200", "0000:01:00.0", "580.1"), 1.0)]
    assert {labels[1] for labels, value in found[metrics.GPU_THROTTLE] if value} == {"hw_thermal"}
    old = DeviceSample(1, DevicesState.hung, "", rows, is_fresh=False)
    assert metrics.GPU_INFO not in gauges(a_tick(devices=old))


def test_the_gauges_of_a_route_are_the_numbers_of_the_heat_page(a_tick, a_frame):
    route = Entity(EntityKind.route, endpoint="/v1/chat", instance="i-0")
    silent = Entity(EntityKind.route, endpoint="/v1/embed", instance="i-0")
    instance = {
        "load_ratio": 0.5,
        "cpu_load_ratio": 0.7,
        "memory_load_ratio": 0.3,
        "dispatch_deviation": -1.5,
    }
    columns = {
        "endpoint_heat": 8.0,
        "request_rate": 4.0,
        "latency_p95_seconds": 1.25,
        "requests_ended": 300.0,
    }
    frame = a_frame({route: columns, silent: {"request_rate": 0.0}, INSTANCE: instance})
    endpoint_modality = {"/v1/chat": "image"}
    found = gauges(a_tick(frame=frame, endpoint_modality=endpoint_modality))
    exported = {
        "heat": metrics.ROUTE_HEAT,
        "request_rate": metrics.ROUTE_RATE,
        "latency_p95_seconds": metrics.ROUTE_P95,
        "requests": metrics.ROUTE_REQUESTS,
    }
    of_instance = {
        "load_ratio": metrics.INSTANCE_LOAD,
        "cpu_load_ratio": metrics.INSTANCE_CPU,
        "memory_load_ratio": metrics.INSTANCE_MEMORY,
        "deviation": metrics.INSTANCE_DEVIATION,
    }
    chat, embed = documents.heat(frame, endpoint_modality)["points"]
    labels = ("/v1/chat", "i-0", "image")
    assert {name: dict(found[metric])[labels] for name, metric in exported.items()} == {
        name: chat[name] for name in exported
    }
    assert {name: dict(found[metric])["i-0",] for name, metric in of_instance.items()} == {
        name: chat[name] for name in of_instance
    }
    assert embed["latency_p95_seconds"] is None
    assert ("/v1/embed", "i-0", "unknown") not in dict(found[metrics.ROUTE_P95])
    assert dict(found[metrics.ROUTE_RATE])["/v1/embed", "i-0", "unknown"] == 0.0


def test_the_hottest_routes_come_first(a_tick, a_frame):
    heats = {f"/{heat}": float(heat) for heat in (3, 9, 1)}
    frame = a_frame(
        {
            Entity(EntityKind.route, endpoint=endpoint, instance="i-0"): {"endpoint_heat": heat}
            for endpoint, heat in heats.items()
        }
    )
    assert [value for _, value in gauges(a_tick(frame=frame))[metrics.ROUTE_HEAT]] == [9.0, 3.0, 1.0]
