# SPDX-License-Identifier: Apache-2.0
"""PyTorch's allocator on simulated GPUs: what the probes keep is what torch.cuda.memory_snapshot() says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bpf.targets import wait_until
from tests.pytorch.conftest import Program
from tests.pytorch.simulated import simulated_cuda

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.fragmentation import Basis, Fragmentation

LAUNCH = CUDA_DRIVER.by_symbol()["cuLaunchKernel"].call_id
ROUNDS, OPERATIONS, SLICES = 6, 150, 100


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory, torch_python: Path) -> Iterator[dict[str, str]]:
    with simulated_cuda(tmp_path_factory.mktemp("cuda") / "libraries", torch_python) as environment:
        yield environment


@pytest.fixture
def watch() -> Iterator[Callable[..., ProbeEngine]]:
    engines: list[ProbeEngine] = []

    def begin(**settings: Any) -> ProbeEngine:
        engine = ProbeEngine(ProbesConfig(**{"xid": False, "torch_memory": True, **settings}), SystemClock())
        engines.append(engine)
        engine.start()
        return engine

    yield begin
    for engine in engines:
        engine.close()


def wait_for(engine: ProbeEngine, pid: int, wanted: set[str]) -> None:
    def are_there() -> bool:
        found = [process for process in engine.coverage().processes if process.pid == pid]
        return {lib.kind for each in found for lib in each.libraries if lib.since_ns is not None} >= wanted

    wait_until(are_there, f"{wanted} are attached", 30)


FOLLOWED = {"libcuda", "libc10", "libc10_cuda"}


def expected(snapshot: dict[str, Any]) -> Fragmentation:
    """The same numbers from the allocator's own list of segments and blocks."""
    segments, allocated, free = snapshot["segments"], snapshot["allocated"], snapshot["free"]
    used = {
        start
        for start, size in segments
        if any(start <= address < start + size for address, _, _ in allocated)
    }
    bound = sum(
        size
        for address, size in free
        if any(start <= address < start + length for start, length in segments if start in used)
    )
    stats = snapshot["stats"]
    if stats["inactive_split_bytes.all.current"]:  # of segments that grow PyTorch itself counts none
        assert bound == stats["inactive_split_bytes.all.current"]
    return Fragmentation(
        basis=Basis.TORCH,
        reserved_bytes=stats["reserved_bytes.all.current"],
        allocated_bytes=stats["allocated_bytes.all.current"],
        requested_bytes=stats["requested_bytes.all.current"],
        largest_free_bytes=max((size for _, size in free), default=0),
        free_blocks=len(free),
        inactive_split_bytes=bound,
    )


def followed(engine: ProbeEngine, pid: int, ordinal: int) -> tuple[list[Any], list[Any]]:
    """(segments, blocks) as the kernel's maps have them, sorted like the snapshot's."""
    assert engine.ledger.torch
    rows = engine.ledger.torch.maps.blocks()
    rows = rows[(rows["tgid"] == pid) & (rows["device"] == ordinal)]
    blocks = sorted([int(row[name]) for name in ("address", "bytes", "requested_bytes")] for row in rows)
    segments = engine.ledger.torch.maps.segments()
    segments = segments[(segments["tgid"] == pid) & (segments["device"] == ordinal)]
    return sorted([int(row["address"]), int(row["bytes"])] for row in segments), blocks


@pytest.mark.parametrize(("seed", "expandable"), [(1, False), (2, False), (3, False), (8, True), (9, True)])
def test_segments_and_blocks_are_those_of_the_allocator(
    seed: int, expandable: bool, watch, start_program, cuda
) -> None:
    engine = watch()
    setting = f"expandable_segments:{expandable}"
    program: Program = start_program("allocator.py", seed, **cuda, PYTORCH_CUDA_ALLOC_CONF=setting)
    wait_for(engine, program.pid, FOLLOWED)
    for turn in range(ROUNDS):
        ordinal = turn % 2
        snapshot = program.do("work", OPERATIONS, ordinal)
        found = engine.ledger.torch.fragmentation()[program.pid, ordinal]
        assert found == expected(snapshot), found.reason
        segments, blocks = followed(engine, program.pid, ordinal)
        assert blocks == snapshot["allocated"]
        if not expandable:  # one that grows is known by its first piece, and what follows by the ledger
            assert segments == snapshot["segments"]
        assert 0 < found.external_ratio() < 1
    assert not any(count for name, count in engine.coverage().losses.items() if name == "lost_blocks")


def test_an_allocation_that_fails_is_told_and_changes_nothing(watch, start_program, cuda) -> None:
    engine = watch()
    program: Program = start_program("allocator.py", 4, **cuda)
    wait_for(engine, program.pid, FOLLOWED)
    program.do("work", OPERATIONS, 0)
    assert "out of memory" in program.do("fail", 0)
    rows = engine.ledger.torch.maps.devices()
    (row,) = rows[rows["tgid"] == program.pid]
    assert (row["out_of_memory_total"], row["out_of_memory_requested_bytes"]) == (1, 100 << 30)
    snapshot = program.do("snapshot", 0)
    assert engine.ledger.torch.fragmentation()[program.pid, 0] == expected(snapshot)
    empty = expected(program.do("forget", 0))
    assert engine.ledger.torch.fragmentation()[program.pid, 0] == empty
    assert (empty.reserved_bytes, empty.allocated_bytes) == (0, 0)


def test_a_late_attach_gives_slack_and_says_why_there_is_no_more(watch, start_program, cuda) -> None:
    program: Program = start_program("allocator.py", 5, **cuda)
    program.do("work", OPERATIONS, 0)
    engine = watch()
    wait_for(engine, program.pid, FOLLOWED)
    stats = program.do("work", 20, 0)["stats"]
    found = engine.ledger.torch.fragmentation()[program.pid, 0]
    assert (found.basis, found.reason) == (Basis.POOL, "the allocator was at work before it was followed")
    assert found.allocated_bytes == stats["allocated_bytes.all.current"]
    assert found.reserved_bytes == stats["reserved_bytes.all.current"]
    assert math.isnan(found.external_ratio())


def test_launches_of_real_kernels_are_counted(watch, start_program, cuda) -> None:
    engine = watch(torch_memory=False)
    program: Program = start_program("allocator.py", 6, **cuda)
    wait_for(engine, program.pid, {"libcuda"})
    program.do("add", 101)
    sample = engine.read_slow()
    chosen = (sample.keys["tgid"] == program.pid) & (sample.keys["call"] == LAUNCH)
    assert sample.stats[chosen]["count"].sum() == 101


def test_what_a_block_that_is_made_and_freed_costs(watch, start_program, cuda) -> None:
    program: Program = start_program("allocator.py", 7, **cuda)
    program.do("add", 1)
    bare = program.do("time", SLICES)
    cost: dict[bool, float] = {}
    for is_fast in (False, True):
        engine = watch(fast_placement=is_fast)
        wait_for(engine, program.pid, FOLLOWED)
        program.do("time", 1)
        cost[is_fast] = program.do("time", SLICES) - bare
        engine.close()
    print(f"a block: {bare:.0f} ns, at the symbols {cost[False]:+.0f}, placed {cost[True]:+.0f}")
    assert cost[True] < cost[False] / 3
