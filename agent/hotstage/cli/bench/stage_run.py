# SPDX-License-Identifier: Apache-2.0
"""One run of the simulated host under real probes: what was counted, and what was true. It judges nothing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.clock import Clock
from hotstage.errors import PeerError
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.samples import CallSample
from hotstage.stages.pulse import Rows
from hotstage.stages.stage import modality_name, stage_name
from hotstage.stages.tracker import Tracker

ATTACH_SECONDS = 30.0
FAST_SECONDS = 0.1
_SLOW_EVERY = 10

Durations = dict[tuple[str, str], list[float]]
"""Seconds of ended stages by (stage, modality)."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Which server runs, how long, and what must be attached in it before it may begin."""

    mode: str
    seed: int
    seconds: float
    kinds: Collection[str]


@dataclass(frozen=True, slots=True)
class StageRun:
    """Counts by key, durations of ended stages, and the truth of the same processes."""

    pids: tuple[int, ...]
    truth: dict[str, Any]
    calls: CallSample
    durations: Durations
    losses: dict[str, int]


def run_stages(engine: ProbeEngine, plan: RunPlan, clock: Clock) -> StageRun:
    """Start a host, wait until it is watched, let its traffic run, read both sides.

    Raises PeerError when a deadline passes or the host ends by itself.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hotstage-bench-")))
        options = ["--mode", plan.mode, "--gpus", "2", "--seconds", f"{plan.seconds:g}"]
        host = SimulatedHost.start(folder / "host", seed=plan.seed, clock=clock, options=options)
        stack.callback(host.end)
        _wait_attached(engine, host.pids, plan.kinds)
        watcher = _Watcher(engine, host.pids)
        host.go()
        ends = time.monotonic() + plan.seconds
        while time.monotonic() < ends:
            host.news()
            watcher.look()
            time.sleep(FAST_SECONDS)
        truth = host.stop()
        return watcher.result(truth)


def true_durations(truth: dict[str, Any]) -> Durations:
    """The server's own record of each ended stage of each request."""
    found: Durations = defaultdict(list)
    for span in truth["stages"]:
        found[span["stage"], span["modality"]].append((span["ended_ns"] - span["began_ns"]) / 1e9)
    return found


class _Watcher:
    """Reads at both ticks as the agent does."""

    def __init__(self, engine: ProbeEngine, pids: Sequence[int]) -> None:
        self._engine = engine
        self._pids = tuple(pids)
        self._tracker = Tracker()
        self._durations: Durations = defaultdict(list)
        self._losses: dict[str, int] = {}
        self._ticks = 0

    def look(self) -> None:
        pulse = self._tracker.advance(self._engine.read_fast())
        self._keep(pulse.ended)
        self._losses = dict(pulse.losses)
        self._ticks += 1
        if self._ticks % _SLOW_EVERY == 0:
            self._engine.read_slow()

    def result(self, truth: dict[str, Any]) -> StageRun:
        """The last looks: what ended while the traffic was stopped is among them."""
        self.look()
        self.look()
        return StageRun(self._pids, truth, self._engine.read_slow(), self._durations, self._losses)

    def _keep(self, ended: Rows) -> None:
        for row in ended:
            if int(row["pid"]) in self._pids:
                key = (stage_name(int(row["stage"])), modality_name(int(row["modality"])))
                self._durations[key].append(int(row["duration_ns"]) / 1e9)


def _wait_attached(engine: ProbeEngine, pids: Sequence[int], kinds: Collection[str]) -> None:
    deadline = time.monotonic() + ATTACH_SECONDS
    while missing := _missing(engine, pids, kinds):
        if time.monotonic() > deadline:
            raise PeerError(
                f"waited {ATTACH_SECONDS:.0f} s for probes on {missing}",
                remedy="`hotstage doctor` says what is in the way",
            )
        time.sleep(FAST_SECONDS)


def _missing(engine: ProbeEngine, pids: Sequence[int], kinds: Collection[str]) -> str:
    attached = {
        (process.pid, library.kind)
        for process in engine.coverage().processes
        for library in process.libraries
        if library.since_ns is not None
    }
    return ", ".join(f"{kind} in {pid}" for pid in pids for kind in kinds if (pid, kind) not in attached)
