# SPDX-License-Identifier: Apache-2.0
from hotstage.frame.entity import HOST, Entity, EntityKind


def test_an_entity_shows_only_the_parts_it_has():
    assert Entity(EntityKind.process, pid=7).labels() == {"pid": 7}
    assert str(Entity(EntityKind.route, endpoint="/v1", instance="i-0")) == "/v1 i-0"
    assert str(HOST) == "host" and HOST.labels() == {}


def test_two_entities_are_one_exactly_if_all_parts_are():
    assert Entity(EntityKind.gpu, gpu_uuid="a") == Entity(EntityKind.gpu, gpu_uuid="a")
    assert Entity(EntityKind.gpu, gpu_uuid="a") != Entity(EntityKind.instance, gpu_uuid="a")
