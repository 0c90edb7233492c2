# SPDX-License-Identifier: Apache-2.0
"""A process has a quarter of each map that follows what it does: contexts, devices, primary contexts, pools,
and communicators to come. What goes gives its place back, and the count says what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bpf.conftest import WAYS, Build, Probes, Workload, start_probes
from tests.bpf.memory_target import DEVICE, MemoryTarget
from tests.bpf.shares_held import (
    CONTEXTS,
    DEVICES,
    ENTRIES,
    FLOOD,
    OF_MEMORY,
    POOLS,
    PRIMARIES,
    PRIMARY_CONTEXTS,
    PRIMARY_SHARE,
    SHARE,
    Kind,
    counts,
    entries,
    forget,
    held,
    pending,
    to_come,
)
from tests.bpf.test_layers import attach, build_layers

from hotstage.probes.loader.base import MapSizes
from hotstage.probes.maps.shares import Share

News = Callable[[], dict[str, int]]


@pytest.fixture(scope="session")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of which only NCCL's is attached."""
    return build_layers(tmp_path_factory.mktemp("nccl"))


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0]}, rung {way[1]}")
def crowded(request: pytest.FixtureRequest, memory: Build, nccl: Path, objects: Path) -> Iterator[Probes]:
    """Room for 44 of each, 11 for a process; of primary contexts 28 and 7."""
    compiler, rung = request.param
    sizes = {"memory_pools": ENTRIES, "pending_communicators": ENTRIES, "primary_contexts": PRIMARIES}
    with ExitStack() as stack:
        probes = start_probes(memory, rung, stack, MapSizes(contexts=ENTRIES, by_name=sizes), compiler)
        attach(probes, nccl, stack, "nccl")
        yield probes


@pytest.fixture
def probes(crowded: Probes) -> Iterator[Probes]:
    """Empty, and to be left without anything once every process is forgotten."""
    yield crowded
    forget(crowded, *crowded.maps.holders())
    assert crowded.maps.holders() == []
    for kind in OF_MEMORY:
        assert not len(entries(crowded, kind))
    assert not len(pending(crowded))


@pytest.fixture
def news(probes: Probes) -> News:
    """Losses since the test began."""
    before = probes.losses()
    return lambda: {
        name: count - before.get(name, 0)
        for name, count in probes.losses().items()
        if count != before.get(name, 0)
    }


@pytest.fixture
def start(memory: Build) -> Iterator[Callable[[], MemoryTarget]]:
    with ExitStack() as stack:

        def one() -> MemoryTarget:
            target = MemoryTarget(memory.workload)
            stack.callback(target.close)
            return target

        yield one


@pytest.fixture
def start_ranks(nccl: Path) -> Iterator[Callable[[], Workload]]:
    """Processes of `target/layers.c`."""
    with ExitStack() as stack:

        def one() -> Workload:
            target = Workload(nccl / "layers")
            stack.callback(target.close)
            return target

        yield one


def open_group(target: Workload, count: int) -> None:
    target.do("group", 1, 0, 0)
    target.do("init", count, 8, 5)


@pytest.mark.parametrize("kind", OF_MEMORY, ids=str)
def test_a_flood_is_capped_at_its_share_while_the_others_get_theirs(
    probes: Probes, news: News, start: Callable[[], MemoryTarget], kind: Kind
) -> None:
    hostile, honest = start(), start()
    kind.take(hostile, 0, FLOOD)
    assert held(probes, kind, hostile) == [kind.limit]
    assert news() == {kind.loss: FLOOD - kind.limit}
    kind.take(honest, 0, kind.limit)
    assert held(probes, kind, hostile, honest) == [kind.limit, kind.limit]
    assert news() == {kind.loss: FLOOD - kind.limit}


@pytest.mark.parametrize(
    ("kind", "taken_by", "count"),
    [
        (CONTEXTS, PRIMARY_CONTEXTS, PRIMARY_SHARE),
        (DEVICES, DEVICES, SHARE),
        (PRIMARY_CONTEXTS, PRIMARY_CONTEXTS, PRIMARY_SHARE),
        (POOLS, POOLS, SHARE),
    ],
    ids=["contexts", "device_uuids", "primary_contexts", "memory_pools"],
)
def test_what_is_there_takes_no_second_place(
    probes: Probes, news: News, start: Callable[[], MemoryTarget], kind: Kind, taken_by: Kind, count: int
) -> None:
    target = start()
    for _ in range(3):
        taken_by.take(target, 0, count)
    assert held(probes, kind, target) == [count]
    assert news() == {}


@pytest.mark.parametrize(
    ("kind", "taken_by", "gives"),
    [
        (CONTEXTS, CONTEXTS, ("destroy",)),
        (PRIMARY_CONTEXTS, PRIMARY_CONTEXTS, ("release",)),
        (PRIMARY_CONTEXTS, PRIMARY_CONTEXTS, ("reset",)),
        (POOLS, POOLS, ("trim",)),
        (POOLS, POOLS, ("destroy_pool",)),
        (POOLS, replace(POOLS, verb="graphs", words=(0,)), ("graphs", 4)),
    ],
    ids=["destroyed", "released", "reset", "trimmed", "pool destroyed", "graphs trimmed"],
)
def test_what_goes_gives_its_place_back_once(
    probes: Probes,
    news: News,
    start: Callable[[], MemoryTarget],
    kind: Kind,
    taken_by: Kind,
    gives: tuple[str | int, ...],
) -> None:
    target, gone = start(), 4
    taken_by.take(target, 1, kind.limit)
    for number in (*range(1, 1 + gone), 1):  # the first a second time
        target.do(gives[0], number, *gives[1:])
    assert held(probes, kind, target) == [kind.limit - gone]
    taken_by.take(target, 40, gone)
    assert held(probes, kind, target) == [kind.limit]
    assert news() == {}
    taken_by.take(target, 60, 1)
    assert held(probes, kind, target) == [kind.limit]
    assert news() == {kind.loss: 1}


def test_a_primary_context_that_is_held_twice_keeps_its_place_until_its_last_hold_goes(
    probes: Probes, start: Callable[[], MemoryTarget]
) -> None:
    target = start()
    PRIMARY_CONTEXTS.take(target, 1, 3)
    PRIMARY_CONTEXTS.take(target, 1, 1)
    target.do("release", 1)
    assert held(probes, PRIMARY_CONTEXTS, target) == [3]
    target.do("release", 1)
    assert held(probes, PRIMARY_CONTEXTS, target) == [2]


@pytest.mark.parametrize("kind", OF_MEMORY, ids=str)
def test_a_full_map_gives_the_place_back(
    probes: Probes, news: News, start: Callable[[], MemoryTarget], kind: Kind
) -> None:
    crowd = [start() for _ in range(5)]
    for target in crowd:
        kind.take(target, 0, kind.limit)
    assert held(probes, kind, *crowd) == [kind.limit] * 4 + [0]
    assert news() == {kind.loss: kind.limit}
    forget(probes, crowd[0].pid)
    kind.take(crowd[4], 0, kind.limit)
    assert held(probes, kind, *crowd[1:]) == [kind.limit] * 4


@pytest.mark.parametrize("kind", OF_MEMORY, ids=str)
def test_a_forgotten_process_leaves_nothing_and_who_has_its_pid_next_starts_anew(
    probes: Probes, news: News, start: Callable[[], MemoryTarget], kind: Kind
) -> None:
    target, other = start(), start()
    kind.take(target, 0, FLOOD)
    kind.take(other, 0, 3)
    forget(probes, target.pid)
    assert probes.maps.holders() == [other.pid]
    assert entries(probes, kind).tolist() == [other.pid] * 3
    before = news()
    kind.take(target, 0, kind.limit)
    assert held(probes, kind, target, other) == [kind.limit, 3]
    assert news() == before


def test_dropped_memory_gives_its_places_back(
    probes: Probes, news: News, start: Callable[[], MemoryTarget]
) -> None:
    target, other = start(), start()
    for kind in (PRIMARY_CONTEXTS, POOLS):
        kind.take(other, 0, 3)
        kind.take(target, 0, kind.limit)
    target.new(0, DEVICE, 4096)
    probes.maps.drop_memory([target.pid])
    for kind in (PRIMARY_CONTEXTS, POOLS):
        assert held(probes, kind, target, other) == [0, 3]
        kind.take(target, 0, kind.limit)
        assert held(probes, kind, target) == [kind.limit]
    assert counts(probes, Share.ALLOCATIONS)[target.pid] == 0
    assert news() == {}


def test_a_share_that_began_late_is_not_used_up_by_what_came_before_it(
    memory: Build, objects: Path, start: Callable[[], MemoryTarget]
) -> None:
    with ExitStack() as stack:
        compiler, rung = WAYS[0]
        sizes = MapSizes(by_name={"memory_pools": ENTRIES, "process_shares": 1})
        probes = start_probes(memory, rung, stack, sizes, compiler)
        first, second = start(), start()
        POOLS.take(first, 1, 1)
        POOLS.take(second, 1, 2)  # counted in no share: there is room for one
        forget(probes, first.pid)
        POOLS.take(second, 3, 1)
        for pool in (1, 2, 3):
            second.do("trim", pool)
        POOLS.take(second, 1, 3)
        assert entries(probes, POOLS).tolist() == [second.pid] * 3
        assert probes.losses() == {}


def test_a_group_that_makes_too_many_leaves_the_others_their_places(
    probes: Probes, news: News, start_ranks: Callable[[], Workload]
) -> None:
    hostile, honest = start_ranks(), start_ranks()
    open_group(hostile, FLOOD)
    assert to_come(probes, hostile) == [SHARE]
    assert news() == {"lost_pending_communicators": FLOOD - SHARE}
    open_group(honest, SHARE)
    assert to_come(probes, hostile, honest) == [SHARE, SHARE]
    assert news() == {"lost_pending_communicators": FLOOD - SHARE}


@pytest.mark.parametrize("end", ["group_end", "group_dropped"])
def test_a_groups_end_gives_its_places_back(
    probes: Probes, news: News, start_ranks: Callable[[], Workload], end: str
) -> None:
    target = start_ranks()
    for _ in range(3):
        open_group(target, SHARE)
        assert to_come(probes, target) == [SHARE]
        target.do(end, 1, 0, 0)
        assert to_come(probes, target) == [0]
    target.do("init", 2, 8, 5)  # in none: each is a group of its own
    assert to_come(probes, target) == [0]
    assert news() == {}


def test_groups_of_many_processes_fill_the_map_and_no_share(
    probes: Probes, news: News, start_ranks: Callable[[], Workload]
) -> None:
    crowd = [start_ranks() for _ in range(5)]
    for target in crowd:
        open_group(target, SHARE)
    assert to_come(probes, *crowd) == [SHARE] * 4 + [0]
    assert news() == {"lost_pending_communicators": SHARE}
    crowd[0].do("group_end", 1, 0, 0)
    crowd[4].do("init", SHARE, 8, 5)
    assert to_come(probes, *crowd) == [0, *[SHARE] * 4]


def test_a_process_that_is_forgotten_in_its_group_starts_anew(
    probes: Probes, news: News, start_ranks: Callable[[], Workload]
) -> None:
    target, other = start_ranks(), start_ranks()
    open_group(target, FLOOD)
    open_group(other, 3)
    probes.maps.forget_processes([target.pid])
    assert probes.maps.holders() == [other.pid]
    assert pending(probes).tolist() == [other.pid] * 3
    before = news()
    open_group(target, SHARE)
    assert to_come(probes, target, other) == [SHARE, 3]
    assert news() == before


def test_threads_that_end_in_their_groups_give_their_places_back_when_they_are_forgotten(
    probes: Probes, news: News, start_ranks: Callable[[], Workload]
) -> None:
    target, other = start_ranks(), start_ranks()
    open_group(other, 2)
    for _ in range(2):
        lost = news().get("lost_pending_communicators", 0)
        target.do("left_group", 3, 5, 0)  # threads, communicators of each
        assert to_come(probes, target, other) == [SHARE, 2]
        assert news() == {"lost_pending_communicators": lost + 3 * 5 - SHARE}
        ended = set(probes.threads(target.pid)["tid"].tolist()) - {target.pid}
        probes.maps.forget_threads(ended)
        assert to_come(probes, target, other) == [0, 2]
    other.do("group_end", 1, 0, 0)
    assert to_come(probes, target, other) == [0, 0]


def test_a_thread_with_the_id_of_one_that_ended_in_its_group_takes_its_places(
    probes: Probes, news: News, start_ranks: Callable[[], Workload]
) -> None:
    target, other = start_ranks(), start_ranks()
    target.do("left_group", 1, 5, 0)
    (tid,) = set(probes.threads(target.pid)["tid"].tolist()) - {target.pid}
    other.do("left_group", 1, 3, tid)
    assert to_come(probes, target, other) == [2, 3]
    other.do("left_group", 1, 3, tid)  # where it comes back in its own process, it goes on
    assert to_come(probes, target, other) == [0, 6]
    probes.maps.forget_threads([tid])
    assert to_come(probes, target, other) == [0, 0]
    assert news() == {}
