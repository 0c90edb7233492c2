# SPDX-License-Identifier: Apache-2.0
"""Gauges of the last tick; what is unknown has no series."""

from __future__ import annotations

import numpy as np

from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.sinks import metrics
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
    assert dict(found[metrics.COLLECTOR_UP]) == {
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


def test_gauges_stay_within_their_cap(a_tick, a_frame):
    many = {Entity(EntityKind.instance, instance=f"i-{n}"): {"load_ratio": 0.5} for n in range(150)}
    assert len(gauges(a_tick(frame=a_frame(many)))[metrics.INSTANCE_LOAD]) == metrics.INSTANCE_LOAD.cap
