# SPDX-License-Identifier: Apache-2.0
"""The memory ledger equals what the library truly gave and took, on every rung."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.bpf.conftest import Build, Probes, start_probes
from tests.bpf.memory_target import (
    ARRAY,
    BLOCK,
    DEVICE,
    GRANULE,
    HOST,
    PHYSICAL,
    PITCHED,
    POOL,
    RESERVED,
    TOO_MUCH,
    MemoryTarget,
    assert_same,
    entries_of,
    sum_of,
)
from tests.bpf.targets import wait_until

from hotstage.probes.catalogue.spec import Memory
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.maps.layout import NO_DEVICE

MAPPED, IMPORTED = int(Memory.MAPPED), int(Memory.IMPORTED)


@pytest.fixture(scope="module")
def probes(memory_probes: Probes) -> Probes:
    return memory_probes


@pytest.fixture
def start(memory: Build) -> Iterator[Callable[[], MemoryTarget]]:
    started: list[MemoryTarget] = []

    def one() -> MemoryTarget:
        started.append(MemoryTarget(memory.workload))
        return started[-1]

    yield one
    for target in started:
        target.close()


@pytest.fixture
def target(start: Callable[[], MemoryTarget]) -> MemoryTarget:
    return start()


@pytest.fixture
def best(memory: Build, objects: Path) -> Iterator[Callable[[MapSizes], Probes]]:
    """Probes of one's own, on the best rung."""
    with ExitStack() as stack:
        yield lambda sizes=None: start_probes(memory, Rung.SESSION, stack, sizes)


def lost(probes: Probes) -> dict[str, int]:
    found = probes.losses()
    return {name: found.get(name, 0) for name in ("lost_allocations", "unmatched_frees")}


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_random_work_of_several_threads_is_kept_exactly(
    probes: Probes, start: Callable[[], MemoryTarget], seed: int
) -> None:
    before, targets = lost(probes), [start(), start()]
    for target in targets:
        target.do("primary", 1)
    for target in targets:
        target.say("random", seed, 4, 1500)
    for target in targets:
        target.wait("its random work")
        assert_same(probes, target)
    assert lost(probes) == before


def test_a_kind_says_its_size_device_and_stage(probes: Probes, target: MemoryTarget) -> None:
    target.do("primary", 0)
    target.do("stage", 8)
    target.new(0, DEVICE, 1009)
    target.new(1, PITCHED, 1000)
    target.new(2, HOST, 4096)
    target.new(3, PHYSICAL, GRANULE)
    rows = entries_of(probes, target.pid)
    by_kind = {int(row["kind"]): row for row in rows}
    assert {kind: int(row["bytes"]) for kind, row in by_kind.items()} == {
        DEVICE: 1009,
        PITCHED: 1024 * 3,
        HOST: 4096,
        PHYSICAL: GRANULE,
    }
    assert {kind: int(row["device"]) for kind, row in by_kind.items()} == {
        DEVICE: 0,
        PITCHED: 0,
        HOST: NO_DEVICE,
        PHYSICAL: 1,
    }
    assert set(rows["stage"].tolist()) == {8}
    target.free(0, DEVICE)
    assert sum_of(probes, target.pid, DEVICE, "live_bytes") == 0
    assert sum_of(probes, target.pid, DEVICE, "high_bytes") == 1009


def test_whose_first_context_was_seen_has_allocated_nothing_before(
    probes: Probes, start: Callable[[], MemoryTarget]
) -> None:
    whole, late = start(), start()
    whole.do("primary", 0)
    whole.new(0, DEVICE, 1)
    whole.do("primary", 1)
    for kind in (DEVICE, PITCHED, HOST, POOL):  # as a process does that had its context before the attach
        late.new(0, kind, 1)
    late.do("primary", 0)
    begun = probes.maps.ledger.read().begun
    assert whole.pid in begun
    assert late.pid not in begun


def test_an_odd_program_is_followed_as_exactly(probes: Probes, target: MemoryTarget) -> None:
    before = lost(probes)
    target.do("primary", 0)
    target.do("stage", 3)
    target.new(0, DEVICE, 4096)
    (first,) = entries_of(probes, target.pid)
    target.do("stage", 7)
    target.do("elsewhere", 0, DEVICE)  # a thread without a stage frees it
    target.new(1, DEVICE, 100)  # at the same address
    (second,) = entries_of(probes, target.pid)
    assert (int(second["stage"]), second["since_ns"] > first["since_ns"]) == (7, True)
    keys, rows = probes.maps.ledger.read().stages
    own = {int(keys["stage"][at]): rows[at] for at in np.flatnonzero(keys["tgid"] == target.pid)}
    assert {stage: (int(row["live_bytes"]), int(row["high_bytes"])) for stage, row in own.items()} == {
        3: (0, 4096),
        7: (100, 100),
    }
    target.do("foreign", 0)
    target.do("fork", 1, 5000)
    assert_same(probes, target)
    target.free(1, DEVICE)
    target.free(1, DEVICE)  # once more: refused
    target.free(2, DEVICE)  # 0
    assert_same(probes, target)
    after = lost(probes)
    assert after["lost_allocations"] == before["lost_allocations"]
    assert after["unmatched_frees"] == before["unmatched_frees"] + 1  # the child's, of what its parent made


def test_a_failed_allocation_is_told_with_its_size(probes: Probes, target: MemoryTarget) -> None:
    target.new(0, DEVICE, TOO_MUCH)
    target.new(0, DEVICE, TOO_MUCH)
    assert sum_of(probes, target.pid, DEVICE, "failed_count") == 2
    assert sum_of(probes, target.pid, DEVICE, "failed_bytes") == TOO_MUCH
    assert sum_of(probes, target.pid, DEVICE, "allocated_count") == 0
    assert len(entries_of(probes, target.pid)) == 0


def test_a_free_that_fails_frees_nothing(probes: Probes, target: MemoryTarget) -> None:
    target.do("stage", 3)
    target.new(0, DEVICE, 4096)
    since_ns = entries_of(probes, target.pid)["since_ns"].tolist()
    target.do("fail", 1)
    target.free(0, DEVICE)
    target.do("fail", 0)
    assert_same(probes, target)
    assert entries_of(probes, target.pid)["since_ns"].tolist() == since_ns
    target.free(0, DEVICE)
    assert_same(probes, target)


def test_nothing_is_freed_by_a_free_of_nothing(probes: Probes, target: MemoryTarget) -> None:
    before = lost(probes)
    target.free(0, DEVICE)
    assert lost(probes) == before


def test_physical_memory_stays_until_its_last_mapping_is_gone(probes: Probes, target: MemoryTarget) -> None:
    target.new(0, RESERVED, 4 * GRANULE)
    target.new(1, PHYSICAL, GRANULE)
    target.do("map", 0, 0, 1)
    target.do("map", 0, 1, 1)
    target.free(1, PHYSICAL)
    assert sum_of(probes, target.pid, PHYSICAL, "live_bytes") == GRANULE
    assert sum_of(probes, target.pid, MAPPED, "live_bytes") == 2 * GRANULE
    target.do("unmap", 0, 0, 1)
    assert sum_of(probes, target.pid, PHYSICAL, "live_bytes") == GRANULE
    target.do("unmap", 0, 1, 1)
    assert_same(probes, target)
    assert sum_of(probes, target.pid, PHYSICAL, "live_bytes") == 0


def test_a_handle_is_held_by_each_of_its_owners(probes: Probes, target: MemoryTarget) -> None:
    target.new(0, RESERVED, GRANULE)
    target.new(1, PHYSICAL, GRANULE)
    target.do("map", 0, 0, 1)
    target.do("retain", 2, 0)
    target.free(1, PHYSICAL)
    target.do("unmap", 0, 0, 1)
    assert sum_of(probes, target.pid, PHYSICAL, "live_bytes") == GRANULE
    target.free(2, PHYSICAL)
    assert_same(probes, target)


@pytest.mark.parametrize("pieces", [8, 13])
def test_what_is_unmapped_at_once_may_be_of_several_mappings(
    probes: Probes, target: MemoryTarget, pieces: int
) -> None:
    before = lost(probes)
    target.new(0, RESERVED, 16 * GRANULE)
    for granule in range(16):
        target.new(1, PHYSICAL, GRANULE)
        target.do("map", 0, granule, 1)
        target.free(1, PHYSICAL)
    target.do("unmap", 0, 1, pieces)
    assert_same(probes, target)
    assert sum_of(probes, target.pid, PHYSICAL, "live_bytes") == (16 - pieces) * GRANULE
    assert lost(probes) == before


def test_a_context_takes_its_pointers_with_it(probes: Probes, target: MemoryTarget) -> None:
    before = lost(probes)
    target.do("primary", 0)
    target.new(0, DEVICE, 1000)
    target.do("context", 10, 0)
    target.new(1, DEVICE, 300)
    target.new(2, HOST, 70)
    target.new(5, ARRAY, 1)  # of 1 × 1 byte
    target.new(3, PHYSICAL, GRANULE)
    target.do("destroy", 10)
    assert_same(probes, target)
    assert sum_of(probes, target.pid, DEVICE, "implicit_bytes") == 300
    assert sum_of(probes, target.pid, ARRAY, "implicit_count") == 1
    assert sum_of(probes, target.pid, DEVICE, "live_bytes") == 1000
    target.do("primary", 0)
    target.new(4, POOL, 51)
    target.do("release", 0)  # held once more
    assert sum_of(probes, target.pid, DEVICE, "live_bytes") == 1000
    target.do("reset", 0)
    assert_same(probes, target)
    assert sum_of(probes, target.pid, DEVICE, "live_bytes") == 0
    assert sum_of(probes, target.pid, POOL, "live_bytes") == 0
    assert lost(probes) == before


def test_what_a_pool_says_of_itself_is_kept(probes: Probes, target: MemoryTarget) -> None:
    target.do("pool", 9, 5)
    target.do("pool", 9, 7)
    keys, pools = probes.maps.ledger.read().pools
    (row,) = pools[keys["tgid"] == target.pid]
    assert (row["reserved_bytes"], row["used_bytes"]) == (9005, 9007)
    assert row["reserved_ns"] < row["used_ns"]
    assert row["used_high_bytes"] == 0
    target.do("graphs", 1, 0)
    target.do("graphs", 1, 2)
    target.do("trim", 9)  # what it had reserved is not known any more
    keys, pools = probes.maps.ledger.read().pools
    (row,) = pools[keys["tgid"] == target.pid]  # the memory of graphs
    assert (row["reserved_bytes"], row["used_bytes"], row["device"]) == (1072, 1070, 1)
    target.do("graphs", 1, 4)
    assert not (probes.maps.ledger.read().pools[0]["tgid"] == target.pid).any()


def test_a_flood_is_bounded_counted_and_said_to_be_unknown(
    best: Callable[..., Probes], start: Callable[[], MemoryTarget]
) -> None:
    probes = best(MapSizes(by_name={"allocations": 400}))
    flooding, quiet = start(), start()
    flooding.do("flood", 1000, 7)
    quiet.new(0, DEVICE, 11)
    assert len(entries_of(probes, flooding.pid)) == 100  # its quarter
    assert sum_of(probes, flooding.pid, DEVICE, "live_bytes") == 700
    assert sum_of(probes, flooding.pid, DEVICE, "untracked_bytes") == 900 * 7
    assert sum_of(probes, flooding.pid, DEVICE, "untracked_count") == 900
    assert lost(probes) == {"lost_allocations": 900, "unmatched_frees": 0}
    assert_same(probes, quiet)
    flooding.free(0, DEVICE)  # the last one: of those that had no room
    assert lost(probes)["unmatched_frees"] == 1
    assert sum_of(probes, flooding.pid, DEVICE, "live_bytes") == 700


def test_what_was_freed_makes_room_again(best: Callable[..., Probes], target: MemoryTarget) -> None:
    probes = best(MapSizes(by_name={"allocations": 40}))
    for _ in range(30):
        target.new(0, DEVICE, 5)
        target.free(0, DEVICE)
    assert_same(probes, target)
    assert lost(probes) == {"lost_allocations": 0, "unmatched_frees": 0}


def test_frees_of_what_is_older_than_the_attach_are_told(
    best: Callable[..., Probes], target: MemoryTarget
) -> None:
    target.new(0, DEVICE, 4096)
    target.new(1, DEVICE, 4096)
    probes = best()
    target.free(0, DEVICE)
    target.new(2, DEVICE, 100)
    assert lost(probes)["unmatched_frees"] == 1
    assert sum_of(probes, target.pid, DEVICE, "unmatched_frees") == 1
    assert sum_of(probes, target.pid, DEVICE, "live_bytes") == 100


def test_a_process_that_dies_inside_a_call_leaves_nothing(probes: Probes, target: MemoryTarget) -> None:
    target.new(0, DEVICE, 4096)
    target.say("new", 1, DEVICE, BLOCK)
    wait_until(lambda: bool((probes.threads(target.pid)["call"] != 0).any()), "the target is in its call")
    target.process.kill()
    target.process.wait(10)
    keys, last = probes.maps.ledger.forget([target.pid])
    assert last["live_bytes"][keys["kind"] == DEVICE].sum() == 4096
    assert len(entries_of(probes, target.pid)) == 0
    rows = probes.maps.ledger.read()
    for keys, _ in (rows.sums, rows.stages, rows.pools):
        assert not np.isin(keys["tgid"], target.pid).any()
