# SPDX-License-Identifier: Apache-2.0
"""Launches are credited to the stream and the modality that they were made for."""

from __future__ import annotations

from collections.abc import Callable

from tests.bpf.conftest import Probes, Workload

from hotstage.probes.loader.base import MapSizes
from hotstage.probes.maps.conflict import StreamUser

IMAGE, TEXT = 1, 0
VISION_ENCODE, LLM_PREFILL = 8, 12


def users(probes: Probes, pid: int) -> dict[int, StreamUser]:
    return {each.stream: each for each in probes.maps.conflict.streams() if each.pid == pid}


def word(stage: int, modality: int) -> int:
    return stage | modality << 8


def stage_begin(target: Workload, stage: int, modality: int) -> None:
    target.do("stage_begin", "-", word(stage, modality), 0, 0)


def stage_end(target: Workload, stage: int, modality: int) -> None:
    target.do("stage_end", "-", word(stage, modality), 0, 0)


def test_marked_launches_of_two_modalities_on_one_stream_are_told_apart(
    probes: Probes, workload: Workload
) -> None:
    for _ in range(3):
        stage_begin(workload, VISION_ENCODE, IMAGE)
        workload.launch(17, stream=7)
        stage_end(workload, VISION_ENCODE, IMAGE)
        stage_begin(workload, LLM_PREFILL, TEXT)
        workload.launch(5, stream=7)
        stage_end(workload, LLM_PREFILL, TEXT)
    found = users(probes, workload.pid)[7]
    assert (found.launches[IMAGE], found.launches[TEXT]) == (51, 15)
    assert found.stage_masks[IMAGE] == 1 << VISION_ENCODE
    assert found.stage_masks[TEXT] == 1 << LLM_PREFILL
    assert 0 < found.first_ns[IMAGE] < found.first_ns[TEXT] < found.last_ns[IMAGE] < found.last_ns[TEXT]
    assert not any(found.first_ns[modality] for modality in (2, 3, 4, 5))


def test_streams_of_their_own_are_not_shared(probes: Probes, workload: Workload) -> None:
    stage_begin(workload, VISION_ENCODE, IMAGE)
    workload.launch(17, stream=7)
    stage_end(workload, VISION_ENCODE, IMAGE)
    stage_begin(workload, LLM_PREFILL, TEXT)
    workload.launch(5, stream=9)
    stage_end(workload, LLM_PREFILL, TEXT)
    found = users(probes, workload.pid)
    assert {stream: each.launches for stream, each in found.items()} == {
        7: (0, 17, 0, 0, 0, 0),
        9: (5, 0, 0, 0, 0, 0),
    }


def test_a_copy_on_another_stream_moves_no_launches(probes: Probes, workload: Workload) -> None:
    stage_begin(workload, VISION_ENCODE, IMAGE)
    workload.launch(3, stream=7)
    workload.call("wait", 1, 11)
    workload.launch(2, stream=7)
    stage_end(workload, VISION_ENCODE, IMAGE)
    found = users(probes, workload.pid)
    assert {stream: each.launches[IMAGE] for stream, each in found.items()} == {7: 5}


def test_a_change_of_stream_in_a_stage_is_seen_at_the_next_look(probes: Probes, workload: Workload) -> None:
    stage_begin(workload, VISION_ENCODE, IMAGE)
    workload.launch(16, stream=7)
    workload.launch(16, stream=9)
    stage_end(workload, VISION_ENCODE, IMAGE)
    found = users(probes, workload.pid)
    assert {stream: each.launches[IMAGE] for stream, each in found.items()} == {7: 16, 9: 16}


def test_unmarked_launches_are_credited_at_a_wait(probes: Probes, workload: Workload) -> None:
    workload.launch(16, stream=7)
    workload.call("wait", 1, 7)
    assert users(probes, workload.pid)[7].launches == (0, 0, 0, 0, 0, 16)
    assert users(probes, workload.pid)[7].stage_masks == (0,) * 6


def test_a_process_has_a_quarter_of_the_streams(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes(by_name={"stream_users": 8}))
    for stream in range(1, 5):
        stage_begin(workload, VISION_ENCODE, IMAGE)
        workload.launch(1, stream=stream)
        stage_end(workload, VISION_ENCODE, IMAGE)
    assert sorted(users(probes, workload.pid)) == [1, 2]
    assert probes.losses() == {"lost_stream_users": 2}
    workload.close()
    probes.maps.forget_processes([workload.pid])
    assert probes.maps.conflict.streams() == []
