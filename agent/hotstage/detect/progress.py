# SPDX-License-Identifier: Apache-2.0
"""When each process last got on: on the device (launches, device stages, tokens) and at all (any stage).

The hang detector measures silence with it; the latency detector lets the age of open stages stand still
while nothing moves, so that a hang does not look like many slow stages. It judges nothing itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from hotstage.stages.pulse import Pulse
from hotstage.stages.spans import OUTCOME_LOST
from hotstage.stages.stage import Stage

DEVICE_STAGES = frozenset(
    {
        Stage.lora_apply,
        Stage.vision_encode,
        Stage.audio_encode,
        Stage.video_encode,
        Stage.cross_modal_align,
        Stage.llm_prefill,
        Stage.llm_decode,
        Stage.kv_transfer,
        Stage.sample,
    }
)
"""Stages whose work is on the GPU; a server-defined stage counts as one, since its launches show."""

HOST_STAGES = frozenset(
    {Stage.media_fetch, Stage.media_decode, Stage.preprocess, Stage.tokenize, Stage.detokenize}
)
"""Stages whose work is on the CPU: a request in one of them does not wait for the GPU."""

_HOST_MASK = np.uint64(sum(1 << stage for stage in HOST_STAGES))
_LOADING_MASK = np.uint64(1 << Stage.model_load)
_PROCESS_COLUMNS = ("pid", "is_dead", "launch_delta", "output_tokens_total", "open_requests", "instance")

LEAKED_AFTER_NS = 60_000_000_000
"""Nothing was heard of a request for this long while its process went on: its server has forgotten it."""

_RECOVERY_NS = 1_000_000_000
_USUAL_WEIGHT = 0.02
_GAP_HALVES_AFTER_NS = 600_000_000_000


@dataclass(slots=True)
class Gap:
    """The longest pause that ended by itself; an old one fades."""

    longest_ns: int = 0
    _noted_ns: int = 0

    def note(self, since_ns: int, now_ns: int) -> None:
        if now_ns - since_ns >= self.longest_ns:
            self.longest_ns, self._noted_ns = now_ns - since_ns, now_ns
        elif now_ns - self._noted_ns > _GAP_HALVES_AFTER_NS:
            self.longest_ns, self._noted_ns = self.longest_ns // 2, now_ns


@dataclass(slots=True)
class ProcessProgress:
    """One process. Times are CLOCK_MONOTONIC ns."""

    pid: int
    device_ns: int
    """Last launch, end of a device stage or output token."""
    output_ns: int
    """Last end of a device stage, output token or end of a request: something came out."""
    any_ns: int
    """Last end of any stage, stages of the CPU included, or output token."""
    demand_since_ns: int | None = None
    """Since when requests wait for the device without a break; None = none does."""
    open_requests: int = 0
    is_loading: bool = False
    """A request is in `model_load`."""
    launches_seen: int = 0
    tokens_seen: int = 0
    output_pulses: int = 0
    """Pulses in which something came out: with five of them it has proven that it works."""
    busy_pulses: int = 0
    """Pulses with demand and device progress: 20 of them make a cadence."""
    launch_gap: Gap = field(default_factory=Gap)
    """Pauses without device progress while there was demand."""
    output_gap: Gap = field(default_factory=Gap)
    """Pauses in which nothing came out while there was demand."""
    usual_launches: float = 0.0
    """Launches of a pulse while things come out, a slow mean."""
    launches_since_output: int = 0
    pulses_since_output: int = 0
    instance: int = 0
    hung_ns: tuple[int, int] = (0, 0)
    """The last interval in which it was found hung: that time is no stage's own."""

    @property
    def is_proven(self) -> bool:
        return self.output_pulses >= 5

    @property
    def has_cadence(self) -> bool:
        return self.launches_seen > 0 and self.busy_pulses >= 20

    @property
    def launches_collapsed(self) -> bool:
        """Since the last output far fewer launches than usual were made: threads still run into the wall."""
        rate = self.launches_since_output / max(self.pulses_since_output, 1)
        return self.usual_launches > 0 and rate < 0.5 * self.usual_launches


class Progress:
    """Observe every pulse before any detector asks. Not thread-safe."""

    def __init__(self) -> None:
        self._processes: dict[int, ProcessProgress] = {}

    def __getitem__(self, pid: int) -> ProcessProgress:
        return self._processes[pid]

    def processes(self) -> list[ProcessProgress]:
        return list(self._processes.values())

    def observe(self, pulse: Pulse) -> None:
        """Take in what moved. After a gap in the telemetry all silence counts from now: nobody looked."""
        came_out, host_ended = _ends(pulse)
        waiting, loading = self._demand(pulse)
        columns = (pulse.processes[name].tolist() for name in _PROCESS_COLUMNS)
        before, self._processes = self._processes, {}
        for pid, is_dead, launches, tokens, open_requests, instance in zip(*columns, strict=True):
            if is_dead:
                continue
            progress = before.get(pid)
            if progress is None:
                progress = ProcessProgress(pid, pulse.at_ns, pulse.at_ns, pulse.at_ns)
            self._processes[pid] = progress
            _advance(
                progress,
                pulse,
                launches=launches,
                output=pid in came_out or tokens > progress.tokens_seen,
                host_end=pid in host_ended,
                demand=waiting[pid],
                loading=pid in loading,
            )
            progress.tokens_seen = tokens
            progress.open_requests = open_requests
            progress.instance = instance

    def frozen_at(self, pid: int, stage: int, now_ns: int) -> int:
        """When something last came out of a span's process; for a CPU stage, when anything moved.

        Launches do not count: in a hang threads go on launching until each of them waits. A stage of the CPU
        stands still only together with requests that wait for the device: where none does, its own age is all
        that tells.
        """
        progress = self._processes.get(pid)
        if progress is None:
            return now_ns
        if stage in DEVICE_STAGES:
            return progress.output_ns
        return now_ns if progress.demand_since_ns is None else progress.any_ns

    def hung_between(self, pid: int, since_ns: int, until_ns: int) -> int:
        """ns of the interval in which its process was hung."""
        progress = self._processes.get(pid)
        if progress is None:
            return 0
        began_ns, ended_ns = progress.hung_ns
        return max(min(until_ns, ended_ns) - max(since_ns, began_ns), 0) if ended_ns else 0

    def _demand(self, pulse: Pulse) -> tuple[Counter[int], set[int]]:
        """(requests that wait for the device, whether any of them loads a model) by pid."""
        rows = pulse.requests_open
        is_waiting = rows["open_mask"] & _HOST_MASK == 0
        pids, heard_ns = rows["pid"], np.maximum(rows["updated_ns"], rows["started_ns"])
        for pid, progress in self._processes.items():
            # Hundreds of requests are of few processes, and of those few have forgotten any.
            least_ns = max(progress.any_ns - LEAKED_AFTER_NS, 0)
            if len(heard_ns) and heard_ns.min() < least_ns:
                is_waiting &= (pids != pid) | (heard_ns >= least_ns)
        waiting = Counter(pids[is_waiting].tolist())
        loads = is_waiting & (rows["open_mask"] & _LOADING_MASK != 0)
        return waiting, set(pids[loads].tolist())


def _advance(
    progress: ProcessProgress,
    pulse: Pulse,
    *,
    launches: int,
    output: bool,
    host_end: bool,
    demand: int,
    loading: bool,
) -> None:
    now = pulse.at_ns
    moved = launches > 0 or output
    blind = bool(pulse.stale)
    progress.launches_seen += launches
    progress.is_loading = loading
    if demand == 0:
        progress.demand_since_ns = None
    elif progress.demand_since_ns is None or blind:
        progress.demand_since_ns = now
    hung_since_ns, hung_until_ns = progress.hung_ns
    if moved and 0 < now - hung_until_ns < _RECOVERY_NS:
        # It came back somewhere in this tick: the rest of the tick belongs to the hang.
        progress.hung_ns = (hung_since_ns, now)
    if progress.demand_since_ns is not None and not blind:
        if moved:
            progress.busy_pulses += 1
            progress.launch_gap.note(max(progress.device_ns, progress.demand_since_ns), now)
        if output:
            progress.output_gap.note(max(progress.output_ns, progress.demand_since_ns), now)
    _note_launches(progress, launches, output=output)
    if moved or blind:
        progress.device_ns = now
    if output or blind:
        progress.output_ns = now
        progress.output_pulses += output
    if output or host_end or blind:
        progress.any_ns = now


def _note_launches(progress: ProcessProgress, launches: int, *, output: bool) -> None:
    """Launches per pulse as a rule: over the time from one output to the next, with demand only."""
    if progress.demand_since_ns is None:
        progress.launches_since_output = progress.pulses_since_output = 0
        return
    progress.launches_since_output += launches
    progress.pulses_since_output += 1
    if output:
        rate = progress.launches_since_output / progress.pulses_since_output
        progress.usual_launches += _USUAL_WEIGHT * (rate - progress.usual_launches)
        progress.launches_since_output = progress.pulses_since_output = 0


def _ends(pulse: Pulse) -> tuple[set[int], set[int]]:
    """(pids of which something came out, pids of which a stage ended, on the CPU or not)."""
    came_out, ended = set(), set()
    for pid, stage in zip(pulse.ended["pid"].tolist(), pulse.ended["label"].tolist(), strict=True):
        ended.add(pid)
        if stage in DEVICE_STAGES:
            came_out.add(pid)
    columns = (pulse.requests_ended[name].tolist() for name in ("pid", "outcome"))
    came_out |= {pid for pid, outcome in zip(*columns, strict=True) if outcome != OUTCOME_LOST}
    return came_out, ended
