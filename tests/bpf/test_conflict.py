# SPDX-License-Identifier: Apache-2.0
"""A verdict on an allocation is told exactly when the table of terms says so, on every rung."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bpf.conftest import Build, Probes, start_probes
from tests.bpf.memory_target import DEVICE, HOST, PHYSICAL, POOL, MemoryTarget

from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.maps.conflict import INPUTS_DTYPE, LIMITS_DTYPE, Outcome, TokenBasis

MIB = 1 << 20
LARGE = 17 * MIB
SECOND = 1_000_000_000
ALLOC = CUDA_DRIVER.by_symbol()["cuMemAlloc_v2"].call_id


@pytest.fixture(scope="module")
def probes(memory_probes: Probes) -> Probes:
    return memory_probes


@pytest.fixture
def best(memory: Build, objects: Path) -> Iterator[Callable[[MapSizes], Probes]]:
    """Probes of one's own, on the best rung."""
    with ExitStack() as stack:
        yield lambda sizes=None: start_probes(memory, Rung.SESSION, stack, sizes)


@pytest.fixture
def start(memory: Build) -> Iterator[Callable[[], MemoryTarget]]:
    started: list[MemoryTarget] = []

    def one() -> MemoryTarget:
        started.append(MemoryTarget(memory.workload))
        started[-1].do("primary", 0)
        return started[-1]

    yield one
    for target in started:
        target.close()


def limit(probes: Probes, **others: Any) -> None:
    """The seed's limits, with no least time between two verdicts unless one is given."""
    row = np.zeros(1, LIMITS_DTYPE)
    row["allocation_bytes"], row["tokens"], row["fragmentation_permille"] = 16 * MIB, (512, 4096), 650
    row["stale_ns"] = 60 * SECOND
    for name, value in others.items():
        row[name] = value
    probes.maps.conflict.set_limits(row)


def inputs(**others: Any) -> np.ndarray:
    """All terms true: 600 visual and 5,000 text tokens that still take 220 MiB, where 100 MiB are left."""
    row, now = np.zeros(1, INPUTS_DTYPE)[0], time.monotonic_ns()
    row["headroom_bytes"], row["headroom_ns"] = 100 * MIB, now
    row["tokens"], row["awaited"], row["tokens_ns"] = (600, 5000), (600, 5000), now
    row["tokens_basis"], row["bytes_per_token"] = TokenBasis.KNOWN, (200_000, 20_000)
    row["fragmentation_permille"], row["fragmentation_basis"], row["fragmentation_ns"] = 700, 4, now
    for name, value in others.items():
        row[name] = value
    return row


def outcome_of(probes: Probes, allocate: Callable[[], None]) -> list[Outcome]:
    """What was counted for it, once for each."""
    before = probes.maps.conflict.counts()
    allocate()
    after = probes.maps.conflict.counts()
    return [outcome for outcome in Outcome for _ in range(after[outcome] - before[outcome])]


CASES: dict[str, tuple[dict[str, Any], Outcome]] = {
    "all terms": ({}, Outcome.TOLD),
    "estimated tokens": ({"tokens_basis": TokenBasis.ESTIMATED}, Outcome.TOLD),
    "fragmentation unknown": ({"fragmentation_basis": 0, "fragmentation_ns": 0}, Outcome.TOLD),
    "fragmentation at the limit": ({"fragmentation_permille": 650}, Outcome.NOT_FRAGMENTED),
    "visual tokens at the limit": ({"tokens": (512, 5000)}, Outcome.FEW_TOKENS),
    "text tokens at the limit": ({"tokens": (600, 4096)}, Outcome.FEW_TOKENS),
    "tokens unknown": ({"tokens_basis": TokenBasis.UNKNOWN}, Outcome.UNKNOWN),
    "free memory unknown": ({"headroom_ns": 0}, Outcome.UNKNOWN),
    "a token's price unknown": ({"bytes_per_token": (200_000, 0)}, Outcome.UNKNOWN),
    "price unknown of none": (
        {"bytes_per_token": (200_000, 0), "awaited": (600, 0)},
        Outcome.TOLD,
    ),
    "exactly as much as is left": ({"awaited": (524, 0), "headroom_bytes": 524 * 200_000}, Outcome.HAS_ROOM),
    "a byte too many": ({"awaited": (524, 0), "headroom_bytes": 524 * 200_000 - 1}, Outcome.TOLD),
    "all is there already": ({"awaited": (0, 0)}, Outcome.HAS_ROOM),
    "headroom too old": ({"headroom_ns": 1}, Outcome.STALE),
    "tokens too old": ({"tokens_ns": 1}, Outcome.STALE),
    "fragmentation too old": ({"fragmentation_ns": 1}, Outcome.STALE),
}


def test_a_verdict_is_told_exactly_when_all_terms_are_true(
    probes: Probes, start: Callable[[], MemoryTarget]
) -> None:
    target, conflict = start(), probes.maps.conflict
    limit(probes)
    for name, (changes, expected) in CASES.items():
        conflict.set_inputs({(target.pid, 0): inputs(**changes)})
        assert outcome_of(probes, lambda: target.new(0, DEVICE, LARGE)) == [expected], name
        assert len(conflict.drain()) == (expected is Outcome.TOLD), name
        target.free(0, DEVICE)


def test_a_verdict_says_who_what_and_why(probes: Probes, start: Callable[[], MemoryTarget]) -> None:
    target, conflict = start(), probes.maps.conflict
    limit(probes)
    target.do("stage", 8)
    given = inputs()
    conflict.set_inputs({(target.pid, 0): given})
    before_ns = time.monotonic_ns()
    target.new(0, DEVICE, LARGE)
    (row,) = conflict.drain()
    assert (row["tgid"], row["tid"], row["device"]) == (target.pid, target.pid, 0)
    assert (row["bytes"], row["call"], row["stage"], row["modality"]) == (LARGE, ALLOC, 8, 1)
    assert before_ns <= row["at_ns"] <= time.monotonic_ns()
    assert row["predicted_bytes"] == 600 * 200_000 + 5000 * 20_000
    assert row["inputs"].tobytes() == given.tobytes()
    assert row["terms"] == 1


def test_small_allocations_and_those_of_the_host_are_not_looked_at(
    probes: Probes, start: Callable[[], MemoryTarget]
) -> None:
    target = start()
    limit(probes)
    probes.maps.conflict.set_inputs({(target.pid, 0): inputs()})
    assert outcome_of(probes, lambda: target.new(0, DEVICE, 16 * MIB)) == []
    assert outcome_of(probes, lambda: target.new(1, HOST, LARGE)) == []
    assert outcome_of(probes, lambda: target.new(2, POOL, LARGE)) == [Outcome.TOLD]
    # cuMemCreate names its device itself: 1, of which nothing is known
    assert outcome_of(probes, lambda: target.new(3, PHYSICAL, LARGE)) == [Outcome.NO_INPUTS]
    limit(probes, allocation_bytes=0)
    assert outcome_of(probes, lambda: target.new(4, DEVICE, LARGE)) == []
    probes.maps.conflict.drain()


def test_room_is_that_of_the_gpu_that_is_allocated_on(
    probes: Probes, start: Callable[[], MemoryTarget]
) -> None:
    target, conflict = start(), probes.maps.conflict
    limit(probes)
    # The tokens' memory is on GPU 0, and tight; on GPU 1 nothing of theirs is awaited.
    conflict.set_inputs({(target.pid, 0): inputs(), (target.pid, 1): inputs(awaited=(0, 0))})
    assert outcome_of(probes, lambda: target.new(0, PHYSICAL, LARGE)) == [Outcome.HAS_ROOM]
    assert outcome_of(probes, lambda: target.new(1, DEVICE, LARGE)) == [Outcome.TOLD]
    conflict.drain()


def test_a_process_is_told_of_once_in_a_while(probes: Probes, start: Callable[[], MemoryTarget]) -> None:
    target, other, conflict = start(), start(), probes.maps.conflict
    limit(probes, gap_ns=60 * SECOND)
    conflict.set_inputs({(target.pid, 0): inputs(), (other.pid, 0): inputs()})
    assert outcome_of(probes, lambda: target.do("flood", 7, LARGE)) == [Outcome.TOLD] + 6 * [
        Outcome.HELD_BACK
    ]
    assert outcome_of(probes, lambda: other.new(0, DEVICE, LARGE)) == [Outcome.TOLD]
    assert conflict.drain()["tgid"].tolist() == [target.pid, other.pid]
    limit(probes, gap_ns=0)
    target.new(0, DEVICE, LARGE)
    assert conflict.drain()["held_back"].tolist() == [6]


def test_nobody_brings_about_a_verdict_on_another(probes: Probes, start: Callable[[], MemoryTarget]) -> None:
    hostile, other, conflict = start(), start(), probes.maps.conflict
    limit(probes)
    conflict.set_inputs({(other.pid, 0): inputs()})
    assert outcome_of(probes, lambda: hostile.do("flood", 100, LARGE)) == 100 * [Outcome.NO_INPUTS]
    assert len(conflict.drain()) == 0


def test_what_finds_the_ring_full_is_counted(
    best: Callable[[MapSizes], Probes], start: Callable[[], MemoryTarget]
) -> None:
    probes, target = best(MapSizes(urgent_bytes=4096)), start()
    limit(probes)
    probes.maps.conflict.set_inputs({(target.pid, 0): inputs()})
    fits = 4096 // (152 + 8)
    target.do("flood", 40, LARGE)
    assert probes.losses()["lost_urgent_ring"] == 40 - fits
    counts = probes.maps.conflict.counts()
    assert (counts[Outcome.TOLD], counts[Outcome.LOST]) == (fits, 40 - fits)
    assert len(probes.maps.conflict.drain()) == fits


def test_inputs_end_with_their_process(
    best: Callable[[MapSizes], Probes], start: Callable[[], MemoryTarget]
) -> None:
    probes, target, other = best(), start(), start()
    limit(probes)
    probes.maps.conflict.set_inputs({(target.pid, 0): inputs(), (other.pid, 0): inputs()})
    probes.maps.conflict.set_inputs({(target.pid, 0): inputs()})
    assert outcome_of(probes, lambda: other.new(0, DEVICE, LARGE)) == [Outcome.NO_INPUTS]
    probes.maps.forget_processes([target.pid])
    assert outcome_of(probes, lambda: target.new(0, DEVICE, LARGE)) == [Outcome.NO_INPUTS]


def test_more_processes_than_have_room_are_told_of(
    best: Callable[[MapSizes], Probes], start: Callable[[], MemoryTarget]
) -> None:
    probes, target = best(MapSizes(by_name={"conflict_inputs": 1})), start()
    assert probes.maps.conflict.set_inputs({(target.pid, 0): inputs(), (target.pid, 1): inputs()}) == 1
