# SPDX-License-Identifier: Apache-2.0
"""Arrays, memory of graphs, what another process, GPU or API made: exact where calls say it, else unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.bpf.conftest import Build, Probes
from tests.bpf.memory_target import (
    ARRAY,
    DEVICE,
    EXTERNAL,
    GRANULE,
    GRAPH,
    MULTICAST,
    POOL,
    RESERVED,
    SHARED,
    MemoryTarget,
    assert_same,
    entries_of,
    sum_of,
)

from hotstage.probes.catalogue.spec import Memory
from hotstage.probes.maps.layout import NO_DEVICE

UNSIZED = 4
"""`ALLOCATION_IS_UNSIZED`."""


@pytest.fixture(scope="module")
def probes(memory_probes: Probes) -> Probes:
    return memory_probes


@pytest.fixture
def start(memory: Build) -> Iterator[Callable[[], MemoryTarget]]:
    started: list[MemoryTarget] = []

    def one() -> MemoryTarget:
        started.append(MemoryTarget(memory.workload))
        started[-1].do("primary", 1)
        return started[-1]

    yield one
    for target in started:
        target.close()


@pytest.fixture
def target(start: Callable[[], MemoryTarget]) -> MemoryTarget:
    return start()


def array(
    width: int, height: int, depth: int, *, shape: int, form: int = 0, flags: int = 0, levels: int = 0
) -> int:
    """What `new` takes of an array: `shape` 0 by cuArrayCreate, 1 by cuArray3DCreate, 2 with levels of
    detail; `form` 0 bytes, 2 words of four, 12 one whose size its format does not say.
    """
    extents = width - 1 << 16 | height << 26 | depth << 34
    return form | shape << 6 | flags << 8 | extents | levels << 38


def lost(probes: Probes) -> int:
    return probes.losses().get("unmatched_frees", 0) + probes.losses().get("lost_allocations", 0)


@pytest.mark.parametrize(
    ("made", "size"),
    [
        (array(100, 0, 0, shape=0), 100),
        (array(100, 30, 0, shape=0, form=2), 12_000),
        (array(100, 30, 7, shape=1), 21_000),
        (array(64, 64, 6, shape=1, flags=4), 24_576),  # a cube's six sides
        (array(7, 5, 3, shape=2, levels=9), 105 + 6 + 1),  # levels end where nothing is left to halve
        (array(4, 4, 3, shape=2, flags=1, levels=3), (16 + 4 + 1) * 3),  # layers stay
        (array(64, 64, 6, shape=1, flags=0x40), 0),  # sparse: what is mapped into it is physical memory
    ],
)
def test_an_array_is_as_large_as_its_descriptor_says(
    probes: Probes, target: MemoryTarget, made: int, size: int
) -> None:
    target.do("stage", 5)
    target.new(0, ARRAY, made)
    (row,) = entries_of(probes, target.pid)
    assert (int(row["bytes"]), int(row["device"]), int(row["stage"])) == (size, 1, 5)
    assert not row["flags"] & UNSIZED
    assert_same(probes, target)
    target.free(0, ARRAY)
    assert_same(probes, target)


def test_what_has_no_size_is_told_as_that_and_not_as_nothing(probes: Probes, target: MemoryTarget) -> None:
    before = lost(probes)
    target.new(0, ARRAY, array(64, 64, 0, shape=0, form=12))
    target.new(1, SHARED, 2)
    target.new(2, SHARED, 2)  # the same once more: one address, two owners
    target.new(3, SHARED, 1)  # of another process's pool
    assert sum_of(probes, target.pid, ARRAY, "unsized_count") == 1
    assert sum_of(probes, target.pid, SHARED, "unsized_count") == 2
    assert all(row["flags"] & UNSIZED for row in entries_of(probes, target.pid))
    target.free(1, SHARED)
    assert sum_of(probes, target.pid, SHARED, "live_count") == 2
    target.free(2, SHARED)
    target.free(3, DEVICE)  # as such a pointer is freed
    target.free(0, ARRAY)
    for kind in (ARRAY, SHARED):
        assert sum_of(probes, target.pid, kind, "unsized_count") == 0
        assert sum_of(probes, target.pid, kind, "freed_count") == {ARRAY: 1, SHARED: 2}[kind]
    assert_same(probes, target)
    assert lost(probes) == before


def test_what_another_api_or_several_gpus_have_is_of_its_own_kind(
    probes: Probes, target: MemoryTarget
) -> None:
    before = lost(probes)
    target.new(0, EXTERNAL, 5000)
    target.new(1, MULTICAST, GRANULE)
    target.new(2, RESERVED, GRANULE)
    target.do("map", 2, 0, 1)
    assert_same(probes, target)
    devices = {int(row["kind"]): int(row["device"]) for row in entries_of(probes, target.pid)}
    assert devices[EXTERNAL] == 1
    assert devices[MULTICAST] == devices[Memory.MAPPED] == NO_DEVICE
    target.free(1, MULTICAST)
    assert sum_of(probes, target.pid, MULTICAST, "live_bytes") == GRANULE  # until its mapping has gone
    target.do("unmap", 2, 0, 1)
    target.free(0, DEVICE)
    assert_same(probes, target)
    assert lost(probes) == before


def test_what_graphs_give_out_is_no_memory_of_the_pool(probes: Probes, target: MemoryTarget) -> None:
    before = lost(probes)
    for register, size in enumerate((300, 301, 302)):  # by each of the three calls that add a node
        target.new(register, GRAPH, size)
    target.do("node", 9, 4096)  # which allocates nothing
    target.do("capture", 3, 1001, 0)
    target.do("capture", 4, 2000, 1)
    target.new(5, POOL, 77)
    assert sum_of(probes, target.pid, GRAPH, "live_bytes") == 300 + 301 + 302 + 1001 + 2000
    assert sum_of(probes, target.pid, POOL, "live_bytes") == 77
    for _ in range(2):  # what a launch allocated is freed, at each launch anew, and the node stays
        target.free(3, POOL)
        target.free(0, DEVICE)
    assert_same(probes, target)
    target.free(5, POOL)
    assert_same(probes, target)
    assert lost(probes) == before
