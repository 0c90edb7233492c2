# SPDX-License-Identifier: Apache-2.0
"""A process that begins requests without end holds its share of the map, and everybody else's get through."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import SOURCES, WAYS, Build, Probes, Workload, start_probes
from tests.bpf.request_server import Server

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.loader.base import MapSizes

sys.path.insert(0, str(Path(__file__).parent))
from targets import wait_until

ENTRIES, SHARE = 44, 11
StartWorkload = Callable[[], Workload]


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0]}, rung {way[1]}")
def crowded(request: pytest.FixtureRequest, build: Build, objects: Path) -> Iterator[Probes]:
    """Room for 44 requests, 11 for each process."""
    compiler, rung = request.param
    with ExitStack() as stack:
        yield start_probes(build, rung, stack, MapSizes(pipeline_state=ENTRIES), compiler)


@pytest.fixture
def probes(crowded: Probes) -> Iterator[Probes]:
    yield crowded
    crowded.maps.forget_processes(list(crowded.maps.request_counts()))
    assert not len(crowded.maps.requests())
    assert not crowded.maps.request_counts()


@pytest.fixture
def news(probes: Probes) -> Callable[[], dict[str, int]]:
    """Losses since the test began."""
    before = probes.losses()
    return lambda: {
        name: count - before.get(name, 0)
        for name, count in probes.losses().items()
        if count != before.get(name, 0)
    }


def begin(workload: Workload, first: int, count: int) -> None:
    for request in range(first, first + count):
        workload.do("begin", f"r{request}", request)


def end(workload: Workload, first: int, count: int) -> None:
    for request in range(first, first + count):
        workload.do("end", "-", request, 0, 0)


def held(probes: Probes, *workloads: Workload) -> list[int]:
    counts = probes.maps.request_counts()
    assert all(counts.get(each.pid, 0) == len(probes.requests(each.pid)) for each in workloads)
    return [counts.get(each.pid, 0) for each in workloads]


def test_a_flood_is_capped_at_its_share_while_all_of_the_others_get_through(
    probes: Probes, news: Callable[[], dict[str, int]], start_workload: StartWorkload
) -> None:
    hostile, honest = start_workload(), start_workload()
    begin(hostile, 1000, 3 * ENTRIES)
    begin(honest, 1, SHARE)
    assert held(probes, hostile, honest) == [SHARE, SHARE]
    assert news() == {"lost_requests_quota": 3 * ENTRIES - SHARE}
    for request in range(1, 30):
        end(honest, request, 1)
        begin(honest, request + SHARE, 1)
    assert held(probes, hostile, honest) == [SHARE, SHARE]
    assert news() == {"lost_requests_quota": 3 * ENTRIES - SHARE}


def test_an_end_frees_the_share_of_who_began_it_whoever_ends_it(
    probes: Probes, news: Callable[[], dict[str, int]], start_workload: StartWorkload
) -> None:
    server, engine = start_workload(), start_workload()
    begin(server, 1, SHARE)
    begin(engine, 100, 2)
    end(engine, 1, 4)
    end(server, 5, 3)
    assert held(probes, server, engine) == [SHARE - 7, 2]
    begin(server, 200, 7)
    assert held(probes, server, engine) == [SHARE, 2]
    assert news() == {}
    begin(server, 300, 1)
    assert news() == {"lost_requests_quota": 1}


def test_a_second_end_of_a_request_gives_nothing_back(
    probes: Probes, news: Callable[[], dict[str, int]], workload: Workload
) -> None:
    begin(workload, 1, 3)
    end(workload, 1, 1)
    end(workload, 1, 1)
    assert held(probes, workload) == [2]
    assert news() == {"missed_request": 1}


def test_an_id_begun_again_counts_once_even_at_the_limit(
    probes: Probes, news: Callable[[], dict[str, int]], workload: Workload
) -> None:
    begin(workload, 1, SHARE)
    for _ in range(5):
        begin(workload, 1, SHARE)
    assert held(probes, workload) == [SHARE]
    assert news() == {"reused_request": 5 * SHARE}
    end(workload, 1, SHARE)
    assert held(probes, workload) == [0]


def test_an_id_begun_again_by_another_process_counts_in_its_share(
    probes: Probes, news: Callable[[], dict[str, int]], start_workload: StartWorkload
) -> None:
    first, second = start_workload(), start_workload()
    begin(first, 1, 5)
    begin(second, 1, 3)
    assert held(probes, first, second) == [2, 3]
    end(first, 1, 5)
    assert held(probes, first, second) == [0, 0]
    assert news() == {"reused_request": 3}


def test_counts_stay_exact_while_processes_begin_and_end_the_same_ids_at_once(
    probes: Probes, start_workload: StartWorkload
) -> None:
    crowd, commands, chance = [start_workload() for _ in range(3)], 1500, random.Random(7)
    for workload in crowd:
        for _ in range(commands):
            request = chance.randrange(1, 20)
            workload.say(*chance.choice([("begin", "r", request), ("end", "-", request, 0, 0)]))
    for workload in crowd:
        for _ in range(commands):
            workload.wait("its begins and ends")
    assert max(held(probes, *crowd)) <= SHARE
    for request in range(1, 20):
        end(crowd[0], request, 1)
    assert held(probes, *crowd) == [0, 0, 0]


def test_a_dead_process_leaves_no_share_behind(probes: Probes, start_workload: StartWorkload) -> None:
    dead, alive = start_workload(), start_workload()
    begin(dead, 1, SHARE)
    begin(alive, 100, 3)
    dead.close()
    assert len(probes.maps.forget_processes([dead.pid]).requests) == SHARE
    assert probes.maps.request_counts() == {alive.pid: 3}
    assert held(probes, alive) == [3]


def test_without_room_for_a_count_the_request_is_taken_in_and_that_is_counted(
    start_small: Callable[[MapSizes], Probes], start_workload: StartWorkload
) -> None:
    probes = start_small(MapSizes(pipeline_state=12, by_name={"request_counts": 1}))
    counted, uncounted = start_workload(), start_workload()
    begin(counted, 1, 4)
    begin(uncounted, 100, 5)
    assert probes.losses() == {"lost_requests_quota": 1, "lost_quotas": 5}
    assert len(probes.requests(uncounted.pid)) == 5
    # Its entries are nobody's, even when it has a share of its own by the time that they end
    counted.close()
    probes.maps.forget_processes([counted.pid])
    begin(uncounted, 200, 2)
    end(uncounted, 100, 5)
    assert probes.maps.request_counts() == {uncounted.pid: 2}
    assert len(probes.requests(uncounted.pid)) == 2


def test_a_full_map_gives_the_share_back(
    start_small: Callable[[MapSizes], Probes], start_workload: StartWorkload
) -> None:
    probes = start_small(MapSizes(pipeline_state=8))
    crowd = [start_workload() for _ in range(5)]
    for number, workload in enumerate(crowd):
        begin(workload, 10 * number, 2)
    assert probes.losses() == {"lost_requests": 2}
    assert held(probes, *crowd) == [2, 2, 2, 2, 0]


def test_limits_set_later_leave_the_share_as_it_is(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes(pipeline_state=8))
    probes.maps.set_limits(slow_call_ns=1, event_gap_ns=2)
    begin(workload, 1, 3)
    assert probes.losses() == {"lost_requests_quota": 1}


def test_who_came_and_went_before_anybody_looked_leaves_nothing_behind(tmp_path: Path, build: Build) -> None:
    marks, workload = tmp_path / "libhotstage_marks.so", tmp_path / "workload"
    rpath = f"-Wl,-rpath,{tmp_path}:{build.cuda.parent}"
    for command in (
        ["-shared", "-o", marks, SOURCES / "marks_entries.S"],
        ["-o", workload, SOURCES / "workload.c", build.cuda, marks, rpath],
    ):
        subprocess.run(["gcc", "-O2", "-pthread", *command], check=True, timeout=60)
    keeper = Workload(workload)
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False, process_linger_seconds=0.1), SystemClock())
    try:
        engine.start()
        wait_until(lambda: keeper.pid in engine.pids(), "the marks are attached")
        mine = {keeper.pid}
        for number in range(1, 41):
            passing = Workload(workload)
            passing.do("begin", f"r{number}", number)
            passing.close()
            mine.add(passing.pid)
        keeper.do("begin", "kept", 99)

        def left() -> list[int]:
            """Only of the processes above: others on this host may use marks as well."""
            requests = engine.read_fast().requests
            return [int(row["request_hash"]) for row in requests if int(row["tgid"]) in mine]

        assert len(left()) == 41
        wait_until(lambda: (engine.read_slow(), left())[1] == [99], "the requests of the dead are removed")
    finally:
        engine.close()
        keeper.close()


def test_a_process_that_makes_keys_without_end_leaves_room_for_others(
    start_small: Callable[[MapSizes], Probes], start: Callable[[Probes], Server]
) -> None:
    probes = start_small(MapSizes(call_stats=400, call_histograms=512))
    hostile, honest = start(probes), start(probes)
    hostile.do("words")
    assert len(probes.rows(hostile.pid, 1)[0]) == 100
    assert probes.losses().keys() == {"lost_call_keys"}
    honest.do("launch", 7)
    assert probes.count(honest.pid, 1) == 7
    probes.maps.forget_processes([hostile.pid])
    assert probes.maps.holders() == [honest.pid]
    hostile.do("launch", 3)
    assert probes.count(hostile.pid, 1) == 3, "its share was given back"


def test_a_process_that_looks_up_functions_without_end_leaves_room_for_others(
    start_small: Callable[[MapSizes], Probes], start_workload: Callable[[], Workload]
) -> None:
    probes = start_small(MapSizes(by_name={"functions": 40, "streams": 8}))
    hostile, honest = start_workload(), start_workload()
    for number in range(30):
        hostile.do("named", f"kernel-{number}", 1)
        hostile.do("stream", "-", 0, 1)
    honest.do("named", "attention", 1)
    functions, streams = probes.maps.inference.functions(), probes.maps.inference.streams()
    assert sum(each.pid == hostile.pid for each in functions) <= 10
    assert [each.name for each in functions if each.pid == honest.pid] == ["attention"]
    assert sum(each.pid == hostile.pid for each in streams) <= 2
