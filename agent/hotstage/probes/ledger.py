# SPDX-License-Identifier: Apache-2.0
"""The memory ledger as one object: the kernel's maps → a `MemorySample` a second; what ended processes had.

What is grouped and sorted is kept until an allocation comes or goes, so that a host at rest costs a read of
the sums. It judges nothing; fragmentation needs to know what is free, and is the frame's matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from math import isnan

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import distinct
from hotstage.probes.coverage import LibraryState, ProcessCoverage
from hotstage.probes.fragmentation import Basis as TorchBasis
from hotstage.probes.fragmentation import Fragmentation
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.ledger import LedgerMaps, LedgerRows, Pair
from hotstage.probes.memory_groups import AllocationGroups, kind_codes, stage_codes
from hotstage.probes.memory_sample import (
    FOR_GPUS,
    MEMORY_ROW_DTYPE,
    MOST_BYTES,
    STAGE_ROW_DTYPE,
    Basis,
    Estimate,
    MemorySample,
    with_ages,
)
from hotstage.probes.torch_memory import TorchMemory

POOL_FRESH_NS = 60_000_000_000
"""What a pool said of itself longer ago is not told."""


class Ledger:
    """Made unstarted. `read` on the slow tick; `forget` when processes have gone. Any thread may call."""

    def __init__(self) -> None:
        self._processes: Callable[[], Iterable[ProcessCoverage]] = tuple
        self.torch: TorchMemory | None = None
        """What PyTorch's allocators hold; None where they are not followed and before `start`."""
        self._maps: LedgerMaps | None = None
        self._lock = threading.Lock()
        self._grouped: tuple[Pair, AllocationGroups] | None = None
        self._ended_processes = 0
        self._ended_bytes = 0

    def start(self, maps: KernelMaps, *, is_torch_followed: bool) -> None:
        """The programs are loaded."""
        self._maps = maps.ledger
        self.torch = TorchMemory.of(maps, is_on=is_torch_followed)

    def follow(self, processes: Callable[[], Iterable[ProcessCoverage]]) -> None:
        """`processes`: what is watched as of now, to tell who is from its start."""
        self._processes = processes

    def read(self, at_ns: int, uuids: Mapping[tuple[int, int], str]) -> MemorySample | None:
        """What is allocated as of now; None before `start`. `uuids`: (pid, ordinal) → `GPU-…`."""
        if self._maps is None:
            return None
        with self._lock:
            rows = self._maps.read()
            groups = self._groups(rows.allocations)
            covered = tuple(self._processes())
            return MemorySample(
                at_ns=at_ns,
                sums=with_ages(*rows.sums, groups.by_kind.of(_codes_of(rows.sums[0])), MEMORY_ROW_DTYPE),
                stages=with_ages(
                    *rows.stages, groups.by_stage.of(_stage_codes_of(rows.stages[0])), STAGE_ROW_DTYPE
                ),
                pages=groups.pages,
                ages=groups.ages(at_ns),
                pools=_pools(rows, at_ns),
                names={each.pid: each.name for each in covered},
                from_start={each.pid for each in covered if _is_whole(each, rows.begun)},
                uuids=uuids,
                exact=self._exact(),
                ended_processes=self._ended_processes,
                ended_bytes=self._ended_bytes,
            )

    def stages(self) -> NDArray[np.void]:
        """By process, device, stage and modality, as of now: `maps.ledger.LedgerMaps.stages`; empty before
        `start`.
        """
        return np.zeros(0, STAGE_ROW_DTYPE) if self._maps is None else self._maps.stages()

    def forget(self, pids: Collection[int]) -> None:
        """These have gone, and what they had is free: take out all that there is of them."""
        if self._maps is None or not pids:
            return
        keys, sums = self._maps.forget(pids)
        live = sums["live_bytes"]
        held = np.isin(keys["kind"], FOR_GPUS) & (live > 0) & (live <= MOST_BYTES)
        with self._lock:
            self._ended_processes += len(distinct(keys["tgid"][held]))
            self._ended_bytes += sum(live[held].tolist())

    def _exact(self) -> dict[tuple[int, int], Estimate]:
        found = {} if self.torch is None else self.torch.fragmentation()
        return {place: _estimate(each) for place, each in found.items()}

    def _groups(self, allocations: Pair) -> AllocationGroups:
        """As before where the allocations are the same."""
        if self._grouped is None or self._grouped[0] is not allocations:
            self._grouped = allocations, AllocationGroups(allocations)
        return self._grouped[1]


def _codes_of(keys: NDArray[np.void]) -> NDArray[np.uint64]:
    return kind_codes(keys["tgid"], keys)


def _stage_codes_of(keys: NDArray[np.void]) -> NDArray[np.uint64]:
    return stage_codes(keys["tgid"], keys)


def _is_whole(process: ProcessCoverage, begun: Collection[int]) -> bool:
    """Whether its driver library is probed, and was before it called it or before it had a context."""
    drivers = [library for library in process.libraries if library.kind == "libcuda"]
    return bool(drivers) and all(
        (library.from_start or process.pid in begun)
        and library.state in (LibraryState.ATTACHED, LibraryState.ALIAS)
        for library in drivers
    )


def _estimate(found: Fragmentation) -> Estimate:
    """Of one of PyTorch's allocators: exact by its blocks, else slack."""
    if found.basis is TorchBasis.TORCH:
        ratio, largest = found.external_ratio(), found.largest_free_bytes
        return Estimate(Basis.TORCH, None if isnan(ratio) else ratio, found.free_bytes, largest)
    slack = found.slack_ratio
    return Estimate(Basis.POOL, None if isnan(slack) else slack, found.free_bytes, why=found.reason or "")


def _pools(rows: LedgerRows, at_ns: int) -> dict[tuple[int, int], Estimate]:
    """Slack of pools whose process asked lately how much they have reserved and how much they use."""
    keys, pools = rows.pools
    least_ns = max(0, at_ns - POOL_FRESH_NS)
    known = (pools["reserved_ns"] > least_ns) & (pools["used_ns"] > least_ns) & (pools["reserved_bytes"] > 0)
    reserved: dict[tuple[int, int], int] = {}
    used: dict[tuple[int, int], int] = {}
    for key, pool in zip(keys[known], pools[known], strict=True):
        place = int(key["tgid"]), int(pool["device"])
        reserved[place] = reserved.get(place, 0) + int(pool["reserved_bytes"])
        used[place] = used.get(place, 0) + min(int(pool["used_bytes"]), int(pool["reserved_bytes"]))
    return {
        place: Estimate(Basis.POOL, 1 - used[place] / total, free_bytes=total - used[place])
        for place, total in reserved.items()
    }
