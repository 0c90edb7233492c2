# SPDX-License-Identifier: Apache-2.0
"""A process is counted under its GPU from its first stage on."""

from __future__ import annotations

import pytest
from support.pulses import I0, I1, process, pulse

from hotstage.daemon.process_gpus import ProcessGpus, gpu_of, only_gpus
from hotstage.frame.entity import Entity, EntityKind


def test_a_process_with_two_gpus_has_none_that_is_its_own():
    uuids = {(7, 0): "GPU-a", (8, 0): "GPU-b", (8, 1): "GPU-c", (9, 0): "GPU-a", (9, 1): "GPU-a"}
    assert only_gpus(uuids) == {7: "GPU-a", 9: "GPU-a"}


def test_a_new_process_is_asked_for_at_once_and_a_known_one_is_not():
    told, asked = {}, []

    def read():
        asked.append(len(told))
        return dict(told)

    gpus = ProcessGpus(read)
    gpus.meet([])
    assert asked == []
    told[7, 0] = "GPU-a"
    gpus.meet([7])
    assert gpus.of_pid == {7: "GPU-a"}
    gpus.meet([7, 7])
    assert asked == [1]
    gpus.meet([7, 8])
    assert asked == [1, 1], "one that has no GPU is asked for again"
    del told[7, 0]
    assert gpus.refresh() == {}
    assert gpus.of_pid == {}


@pytest.mark.parametrize(
    ("entity", "uuid"),
    [
        (Entity(EntityKind.instance, instance="i-0", pid=7), "GPU-a"),
        (Entity(EntityKind.instance, instance="i-0", pid=5), None),
        (Entity(EntityKind.stage, stage="llm_decode", instance="i-0"), "GPU-a"),
        (Entity(EntityKind.stage, stage="llm_decode", instance="i-1"), None),
        (Entity(EntityKind.stage, stage="llm_decode"), None),
        (Entity(EntityKind.stage, stage="llm_decode", instance="nobody"), None),
    ],
)
def test_the_gpu_of_an_entity_is_its_processs_or_the_one_of_all_of_its_instance(entity, uuid):
    rows = [
        process(7),
        process(8),
        process(9, instance=I1),
        process(10, instance=I1),
        process(11, instance=I0),
    ]
    of_pid = {7: "GPU-a", 8: "GPU-a", 9: "GPU-a", 10: "GPU-b"}
    assert gpu_of(entity, pulse=pulse(0, processes=rows), of_pid=of_pid) == uuid
