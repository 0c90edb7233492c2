# SPDX-License-Identifier: Apache-2.0
import pytest
from support.pulses import CHAT, I1, SECOND, pulse, request
from support.windows import window

from hotstage.breaker.scopes import Traffic, scope_name, scope_named, scopes_of, traffic_of
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.stages.stage import Modality, Stage

ALL = ("host", "gpu", "stage", "modality", "endpoint", "instance")


@pytest.mark.parametrize(
    ("kind", "parts", "labels", "name"),
    [
        (
            "stage_latency",
            {"stage": "vision_encode", "modality": "image", "instance": "i-0"},
            {},
            "stage:vision_encode:image",
        ),
        ("alive_but_hung", {"instance": "i-0", "pid": 7, "stage": "queue"}, {}, "instance:i-0"),
        ("process_death", {"instance": "i-1", "pid": 7}, {}, "instance:i-1"),
        ("gpu_xid", {"gpu_uuid": "GPU-1", "pci_bus_id": "0000:65:00"}, {}, "gpu:GPU-1"),
        ("gpu_xid", {"pci_bus_id": "0000:65:00"}, {}, "gpu:0000:65:00"),
        ("gpu_lost", {"gpu_uuid": "GPU-1", "pci_bus_id": "0000:65:00"}, {}, "gpu:GPU-1"),
        ("my_rule", {"endpoint": "/v1/chat"}, {"breaker": "endpoint"}, "endpoint:/v1/chat"),
        ("my_rule", {"endpoint": "/v1/chat"}, {"breaker": "host"}, "host"),
        ("my_rule", {"stage": "sample", "modality": "text"}, {"breaker": "modality"}, "modality:text"),
    ],
)
def test_a_window_moves_the_breaker_it_speaks_of(kind, parts, labels, name):
    (scope,) = scopes_of(window(kind, labels=labels, **parts), ALL)
    assert scope_name(scope) == name


@pytest.mark.parametrize(
    ("kind", "parts", "kinds"),
    [
        ("my_rule", {"endpoint": "/v1/chat"}, ALL),
        ("alive_but_hung", {"pid": 7}, ALL),
        ("gpu_xid", {"gpu_uuid": "GPU-1"}, ("stage", "instance")),
    ],
)
def test_without_a_label_a_name_or_the_setting_none_moves(kind, parts, kinds):
    assert scopes_of(window(kind, **parts), kinds) == ()


UUID = "GPU-5f1c2d3e-90ab-4cde-8f01-23456789abcd"


@pytest.mark.parametrize(
    "name",
    [
        "host",
        "stage:vision_encode:image",
        "modality:image",
        "endpoint:/v1/chat:batch",
        "instance:i-0",
        f"gpu:{UUID}",
        "gpu:0000:65:00",
    ],
)
def test_a_name_of_each_form_is_a_scope_and_back(name):
    assert scope_name(scope_named(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "hosts",
        "stage:vision_encode",
        "stage:vision_encoder:image",
        "stage:vision_encode:picture",
        "modality:picture",
        "gpu:3",
        f"gpu:{UUID.upper()}",
        "instance:",
        "instance:a\x1b[2J",
        "endpoint:/" + "x" * 128,
        "model:llama",
    ],
)
def test_what_no_window_could_name_is_no_scope(name):
    assert scope_named(name) is None


def test_the_traffic_of_a_scope_is_what_went_through_it():
    encode = 1 << Stage.vision_encode
    now = 1000 * SECOND
    seen = pulse(
        now,
        requests_open=[
            request(1, now, open_mask=encode, modality=Modality.image),
            request(2, now, modality=Modality.text, instance=I1),
        ],
        requests_ended=[
            request(3, now, stage_mask=encode, modality=Modality.image),
            request(4, now, stage_mask=encode, modality=Modality.image, outcome=1),
            request(5, now, stage_mask=encode, modality=Modality.mixed, outcome=2),
            request(6, now, modality=Modality.text, instance=I1, endpoint=CHAT),
        ],
    )
    stage = Entity(EntityKind.stage, stage="vision_encode", modality="image")
    assert traffic_of(stage, seen) == Traffic(inflight=1, ended_well=1, ended_badly=1)
    assert traffic_of(Entity(EntityKind.instance, instance="i-1"), seen) == Traffic(1, 1, 0)
    assert traffic_of(Entity(EntityKind.instance, instance="never seen"), seen) == Traffic(0, 0, 0)
    assert traffic_of(Entity(EntityKind.endpoint, endpoint="/v1/chat"), seen) == Traffic(0, 1, 0)
    assert traffic_of(HOST, seen) == Traffic(2, 2, 1)
