# SPDX-License-Identifier: Apache-2.0
"""What does not fit is counted by name, and what was counted before stays right."""

from __future__ import annotations

from collections.abc import Callable

from tests.bpf.conftest import Probes, Workload

from hotstage.probes.loader.base import MapSizes

LAUNCH, ALLOC, WAIT, EVENT = 1, 16, 64, 65


def test_calls_without_a_free_key_are_lost_one_by_one(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes(call_stats=1))
    workload.launch(17)
    workload.call("wait", 11)
    assert probes.count(workload.pid, LAUNCH) == 17
    assert probes.losses() == {"lost_call_keys": 11}


def test_a_thread_without_state_still_has_its_calls_counted(
    start_small: Callable[[MapSizes], Probes], start_workload: Callable[[], Workload]
) -> None:
    probes = start_small(MapSizes(threads=1))
    first, second = start_workload(), start_workload()
    first.launch(5)
    second.launch(7)
    assert [probes.count(target.pid, LAUNCH) for target in (first, second)] == [5, 7]
    assert probes.losses() == {"lost_threads": 7}


def test_without_a_free_histogram_counts_and_sums_go_on(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes(call_histograms=2))
    workload.call("wait", 3)
    workload.call("event", 5, 1)
    assert probes.losses() == {"lost_histograms": 1}
    _, stats = probes.rows(workload.pid, EVENT)
    assert (stats["count"][0], stats["histogram_slot"][0]) == (5, 0)
    assert stats["total_ns"][0] > 0


def test_a_histogram_comes_back_empty_for_the_next_process(
    start_small: Callable[[MapSizes], Probes], start_workload: Callable[[], Workload]
) -> None:
    probes = start_small(MapSizes(call_histograms=2))
    first, second = start_workload(), start_workload()
    first.call("wait", 13)
    first.close()
    probes.maps.forget_processes([first.pid])
    second.call("wait", 3)
    sample = probes.maps.read_slow(0)
    assert sample.keys["tgid"].tolist() == [second.pid]
    assert sample.histogram(0).sum() == 3
    assert probes.losses() == {}


def test_requests_beyond_the_map_are_counted(
    start_small: Callable[[MapSizes], Probes], start_workload: Callable[[], Workload]
) -> None:
    probes = start_small(MapSizes(pipeline_state=1))
    first, second = start_workload(), start_workload()
    first.do("begin", "one", 1)
    second.do("begin", "two", 2)
    assert probes.losses() == {"lost_requests": 1}
    assert probes.requests(first.pid)["id"].tolist() == [b"one"]
    assert probes.maps.request_counts() == {first.pid: 1, second.pid: 0}


def test_records_beyond_the_ring_are_counted_and_the_rest_is_whole(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes(events_bytes=4096))
    for request in range(1, 8):
        workload.do("begin", f"r{request}", request)
        workload.do("end", "-", request, 0, request)
    sample = probes.maps.read_fast(0)
    assert sample.finished["id"].tolist() == [b"r1", b"r2"]
    assert dict(sample.losses)["lost_events_ring"] == 5
    workload.do("begin", "again", 99)
    workload.do("end", "-", 99, 0, 0)
    assert probes.maps.read_fast(0).finished["id"].tolist() == [b"again"]


def test_an_unreadable_argument_is_counted_not_believed(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes())
    workload.do("bad_config", "-")
    assert probes.losses() == {"unreadable_arguments": 2}, "its stream and its grid"
    assert probes.count(workload.pid, 2) == 1
