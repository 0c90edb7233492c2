# SPDX-License-Identifier: Apache-2.0
"""Admission headroom of each process on each of its GPUs, as the kernel judges allocations by it (RULES b).

headroom = free + reusable - reserve. free: NVML's, at its own 10 Hz. reusable: what an allocator or a pool
of the process keeps without using it, and what stages that encode and prefill hold now, since it is a part
of what is predicted for them. reserve: `reserve_ratio` of the GPU's memory.

What a program claims to hold beyond what any GPU has makes its headroom unknown.

Of fragmentation it says what basis it has. A pool's slack says how much is kept, not how it is cut: it counts
as reusable, and as no fragmentation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotstage.config.conflict import ConflictConfig
from hotstage.devices.samples import DeviceSample
from hotstage.frame.memory_types import FragmentationFigure, Memory, MemoryOfProcess
from hotstage.frame.token_demand import Copies, Demand, of_requests
from hotstage.frame.token_prices import Place, TokenPrices, allocated_by_kind
from hotstage.probes.maps.conflict import INPUTS_DTYPE, TEXT, TOKEN_KINDS, VISUAL, TokenBasis
from hotstage.probes.memory_sample import MOST_BYTES, Basis
from hotstage.probes.samples import CallSample, FastSample
from hotstage.stages.pulse import Pulse

MARKED_NS = 60_000_000_000
"""Of a process that marked requests within this time, copies say nothing more."""

_BLINDING = frozenset({"lost_requests_quota", "refused_tokens", "lost_allocations"})
"""Beside what makes a pulse stale: losses that falsify tokens in flight, or what one takes."""
_CUT = frozenset({"torch", "ledger", "inferred"})
"""Bases of fragmentation that say how free memory is cut."""
_NO_DEMAND = Demand(TokenBasis.KNOWN, (0, 0), (0, 0))


class _GpuMemory(NamedTuple):
    """As NVML said at `at_ns`; NaN is unknown."""

    at_ns: int
    used_bytes: float
    total_bytes: float


class Headroom:
    """`take` each pulse, `know` what is found out once a second, `inputs` for the kernel. Not thread-safe."""

    def __init__(self, config: ConflictConfig) -> None:
        self._prices = TokenPrices()
        self._copies = Copies()
        self._estimated: Mapping[int, Demand] = {}
        self._estimated_ns = 0
        self._marked: dict[int, int] = {}
        self._processes: tuple[MemoryOfProcess, ...] = ()
        self._of_gpu: dict[str, FragmentationFigure] = {}
        self._memory_ns = 0
        self._lossy_until_ns = 0
        self.take_over(config)

    def take_over(self, config: ConflictConfig) -> None:
        """Other limits from now on; what tokens cost so far was measured and stays."""
        self._config = config
        self._token_bytes = {VISUAL: config.visual_token_bytes, TEXT: config.text_token_bytes}

    def take(self, pulse: Pulse) -> None:
        """Stages that ended, with their tokens. After losses tokens are unknown for `stale_seconds`."""
        if pulse.stale or _BLINDING & pulse.lost.keys():
            self._lossy_until_ns = pulse.at_ns + round(self._config.stale_seconds * 1e9)
        rows = pulse.ended
        for pid, stage, tokens in zip(
            *(rows[name].tolist() for name in ("pid", "stage", "tokens")), strict=True
        ):
            if tokens:
                self._prices.take(pid, stage, tokens)

    def know(
        self, at_ns: int, memory: Memory, stages: NDArray[np.void], calls: CallSample | None = None
    ) -> None:
        """Once a second: memory by process and GPU, STAGE_ROW_DTYPE of the ledger, and the calls' counts."""
        self._processes = tuple(each for each in memory.processes if each.device is not None)
        self._of_gpu = {gpu.gpu_uuid: gpu.fragmentation for gpu in memory.gpus}
        self._memory_ns = at_ns
        self._marked = {pid: seen for pid, seen in self._marked.items() if at_ns - seen < MARKED_NS}
        if calls is not None:
            self._estimated = self._copies.look(calls, self._marked, self._token_bytes)
            self._estimated_ns = at_ns
            for pid, demand in self._estimated.items():
                for kind in range(TOKEN_KINDS):
                    self._prices.add(pid, kind, demand.awaited[kind])
        self._prices.settle(at_ns, stages)

    def inputs(
        self, sample: FastSample, devices: DeviceSample, stages: NDArray[np.void]
    ) -> dict[Place, np.void]:
        """(pid, ordinal) → INPUTS_DTYPE (), of every process whose memory is known on that device.

        `stages`: rows of `memory_stages` as of now. What is not known has no time, or the basis UNKNOWN.
        """
        if not self._config.enabled or not self._processes:
            return {}
        at_ns, known = sample.at_ns, of_requests(sample.requests)
        self._marked |= dict.fromkeys(known, at_ns)
        gpus = _memory_of(devices) if devices.is_fresh else {}
        held = allocated_by_kind(stages, "live_bytes")
        return {
            (each.pid, each.device): self._row(at_ns, each, known, gpus, held)
            for each in self._processes
            if each.device is not None
        }

    def _row(
        self,
        at_ns: int,
        process: MemoryOfProcess,
        known: Mapping[int, Demand],
        gpus: Mapping[str, _GpuMemory],
        held: Mapping[tuple[Place, int], int],
    ) -> np.void:
        row: np.void = np.zeros(1, INPUTS_DTYPE)[0]
        place = process.pid, process.device or 0
        if at_ns >= self._lossy_until_ns:
            self._put_demand(row, at_ns, place, known)
        gpu = gpus.get(process.gpu_uuid or "")
        if gpu is not None and math.isfinite(gpu.used_bytes) and gpu.total_bytes > 0:
            total = gpu.total_bytes
            free = max(0.0, total - gpu.used_bytes)
            parts = [
                _kept(process.fragmentation),
                *(held.get((place, kind), 0) for kind in range(TOKEN_KINDS)),
            ]
            if max(parts) <= MOST_BYTES:
                headroom = free + sum(parts) - self._config.reserve_ratio * total
                row["headroom_bytes"] = max(0, int(headroom))
                row["headroom_ns"] = gpu.at_ns
        figure = process.fragmentation
        if figure.basis not in _CUT or figure.ratio is None:
            figure = self._of_gpu.get(process.gpu_uuid or "", figure)
        if figure.basis in _CUT and figure.ratio is not None and not math.isnan(figure.ratio):
            row["fragmentation_permille"] = round(1000 * min(max(figure.ratio, 0.0), 1.0))
            row["fragmentation_basis"] = Basis[figure.basis.upper()]
            row["fragmentation_ns"] = self._memory_ns
        return row

    def _put_demand(self, row: np.void, at_ns: int, place: Place, known: Mapping[int, Demand]) -> None:
        demand, told_ns = known.get(place[0]), at_ns
        if demand is None and place[0] in self._marked:
            demand = _NO_DEMAND
        elif demand is None:
            demand, told_ns = self._estimated.get(place[0]), self._estimated_ns
        if demand is None:
            return
        row["tokens"], row["tokens_ns"], row["tokens_basis"] = demand.tokens, told_ns, demand.basis
        for kind in range(TOKEN_KINDS):
            row["bytes_per_token"][kind] = self._prices.of(place, kind)
            # Tokens whose memory has never been on this device will not be there now.
            if self._prices.works_on(place, kind):
                row["awaited"][kind] = demand.awaited[kind]


def _memory_of(devices: DeviceSample) -> dict[str, _GpuMemory]:
    """By UUID; rows of numpy cost a microsecond a field."""
    rows = devices.rows
    columns = (rows[name].tolist() for name in ("uuid", "at_ns", "memory_used_bytes", "memory_total_bytes"))
    return {
        uuid.decode("ascii", "replace"): _GpuMemory(*memory) for uuid, *memory in zip(*columns, strict=True)
    }


def _kept(figure: FragmentationFigure) -> int:
    """What an allocator keeps and can give out in one piece, as far as that is known."""
    if figure.basis == "torch":
        return figure.largest_free_bytes or 0
    return (figure.free_bytes or 0) if figure.basis == "pool" else 0
