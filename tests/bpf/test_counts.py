# SPDX-License-Identifier: Apache-2.0
"""Counts equal what the target made, to the last call; primes, so that a lost or doubled one shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.bpf.conftest import Probes, Workload

from hotstage.probes.maps.layout import NO_DEVICE, NO_STAGE

LAUNCH, LAUNCH_EX, GRAPH, ALLOC, PITCH, FREE, COPY, MEMSET, WAIT = 1, 2, 4, 16, 17, 21, 40, 57, 64
VISION, IMAGE = 8, 1
TOO_MUCH = 0xDEAD


def test_launches_are_counted_once_whatever_their_variant(probes: Probes, workload: Workload) -> None:
    workload.launch(1009)
    workload.call("ptsz", 101)
    workload.do("launch_ex", "-", 53, 0)
    workload.call("graph", 29)
    assert probes.count(workload.pid, LAUNCH) == 1009 + 101
    assert probes.count(workload.pid, LAUNCH_EX) == 53
    assert probes.count(workload.pid, GRAPH) == 29


def test_timed_calls_carry_bytes_errors_and_a_histogram(probes: Probes, workload: Workload) -> None:
    workload.call("alloc", 211, 4096)
    workload.call("alloc", 13, TOO_MUCH)
    workload.call("free", 17, 0)
    keys, stats = probes.rows(workload.pid, ALLOC)
    assert len(keys) == 1
    assert (stats["count"][0], stats["bytes"][0]) == (224, 211 * 4096)
    assert (stats["errors"][0], stats["errors_oom"][0]) == (13, 13)
    assert stats["abandoned"][0] == 0
    sample = probes.maps.read_slow(0)
    row = int(np.flatnonzero((sample.keys["tgid"] == workload.pid) & (sample.keys["call"] == ALLOC))[0])
    counts = sample.histogram(row)
    slots = np.flatnonzero(counts)
    assert counts.sum() == 224
    assert 1 <= slots.min() <= slots.max() <= 240
    _, free = probes.rows(workload.pid, FREE)
    assert (free["count"][0], free["errors"][0], free["errors_oom"][0]) == (17, 17, 0)


def test_sizes_follow_the_prototype(probes: Probes, workload: Workload) -> None:
    workload.call("pitch", 7, 1000)
    workload.call("copy", 11, 8191)
    workload.call("memset", 5, 127)
    assert probes.rows(workload.pid, PITCH)[1]["bytes"][0] == 7 * 1000 * 3
    assert probes.rows(workload.pid, COPY)[1]["bytes"][0] == 11 * 8191
    assert probes.rows(workload.pid, MEMSET)[1]["bytes"][0] == 5 * 127 * 4


def test_calls_go_to_the_stage_their_thread_is_in(probes: Probes, workload: Workload) -> None:
    workload.launch(31)
    workload.do("stage_begin", "-", VISION | IMAGE << 8, 0, 0)
    workload.launch(127)
    workload.call("wait", 19)
    workload.do("stage_end", "-", VISION | IMAGE << 8, 0, 0)
    workload.launch(37)
    assert probes.count(workload.pid, LAUNCH, stage=VISION, modality=IMAGE) == 127
    assert probes.count(workload.pid, WAIT, stage=VISION, modality=IMAGE) == 19
    assert probes.count(workload.pid, LAUNCH, stage=NO_STAGE) == 31 + 37
    (thread,) = probes.threads(workload.pid)
    assert (thread["launch_total"], thread["unattributed_total"]) == (31 + 127 + 37, 31 + 37)
    assert thread["stage"] == NO_STAGE


def test_the_stream_is_read_where_the_prototype_has_it(probes: Probes, workload: Workload) -> None:
    for words, stream in (
        (("launch", "-", 1, 0xABC0), 0xABC0),
        (("stage_begin", "-", VISION | IMAGE << 8, 0, 0), 0xABC0),
        (("launch_ex", "-", 1, 0xABC1), 0xABC1),
        (("call", "graph", 1, 0xABC2), 0xABC2),
        (("call", "wait", 1, 0xABC3), 0xABC3),
    ):
        workload.do(*words)
        assert probes.threads(workload.pid)[0]["stream"] == stream


def test_a_stream_in_memory_is_read_after_a_mark_and_every_few_launches(
    probes: Probes, workload: Workload
) -> None:
    workload.do("stage_begin", "-", VISION | IMAGE << 8, 0, 0)
    for count, stream, known in ((15, 0xABC0, 0xABC0), (1, 0xABC1, 0xABC0), (1, 0xABC2, 0xABC2)):
        workload.launch(count, stream)
        assert probes.threads(workload.pid)[0]["stream"] == known
    workload.do("stage_end", "-", VISION | IMAGE << 8, 0, 0)
    workload.launch(1, 0xABC3)
    assert probes.threads(workload.pid)[0]["stream"] == 0xABC3


def test_threads_and_processes_at_once_lose_nothing(
    probes: Probes, start_workload: Callable[[], Workload]
) -> None:
    targets = [start_workload() for _ in range(3)]
    for target in targets:
        target.say("threads", "-", 8, 5003, 2003)
    for target in targets:
        target.wait("eight threads of calls")
    for target in targets:
        assert probes.count(target.pid, LAUNCH) == 8 * 5003
        assert probes.count(target.pid, WAIT) == 8 * 2003
        assert len(probes.threads(target.pid)) == 8
        assert not probes.threads(target.pid)["call"].any()


def test_a_context_says_which_device_its_calls_are_on(probes: Probes, workload: Workload) -> None:
    workload.launch(3)
    workload.do("device", "-", 1)
    workload.launch(43)
    workload.do("pushed", "-", 0, 7)
    workload.launch(5)
    assert probes.count(workload.pid, LAUNCH, device=NO_DEVICE) == 3
    assert probes.count(workload.pid, LAUNCH, device=1) == 43 + 5
    assert probes.count(workload.pid, LAUNCH, device=0) == 7
    assert probes.maps.device_uuids()[workload.pid, 1] == b"\x41" * 16


def test_only_what_moved_is_marked_as_moved(probes: Probes, workload: Workload) -> None:
    workload.launch(2)
    workload.call("wait", 2)
    probes.maps.read_slow(0)
    workload.call("wait", 3)
    sample = probes.maps.read_slow(0)
    ours = sample.keys["tgid"] == workload.pid
    assert sample.keys["call"][ours & sample.moved].tolist() == [WAIT]
