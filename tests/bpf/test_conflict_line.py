# SPDX-License-Identifier: Apache-2.0
"""From an allocation in another process to a window and a breaker: the agent's own line on real probes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bpf.conftest import Build, Probes, start_probes
from tests.bpf.memory_target import DEVICE, MemoryTarget, build_memory
from tests.bpf.test_conflict import LARGE, MIB, inputs

from hotstage.clock import SystemClock
from hotstage.config.conflict import ConflictConfig
from hotstage.config.settings import Config
from hotstage.daemon.line import Line, Step
from hotstage.probes.conflict import Conflicts
from hotstage.probes.loader.base import Rung

TICK_SECONDS = 0.1


@pytest.fixture
def watched(build: Build, objects: Path, tmp_path: Path) -> Iterator[tuple[Probes, MemoryTarget]]:
    memory = build_memory(build, tmp_path)
    with ExitStack() as stack:
        probes = start_probes(memory, Rung.SESSION, stack)
        target = MemoryTarget(memory.workload)
        stack.callback(target.close)
        yield probes, target


def tick(line: Line, probes: Probes, conflicts: Conflicts) -> Step:
    """What the daemon does every 100 ms, without devices."""
    sample = probes.maps.read_fast(time.monotonic_ns())
    return line.fast(replace(sample, conflicts=conflicts.drain()))


def test_a_conflict_is_a_window_within_a_second_and_quiet_without_one(
    watched: tuple[Probes, MemoryTarget],
) -> None:
    (probes, target), conflicts, line = watched, Conflicts(), Line(Config(), SystemClock(), ())
    conflicts.limit(ConflictConfig())
    conflicts.start(probes.maps)
    target.do("primary", 0)
    target.new(0, DEVICE, LARGE)  # nothing in flight yet: a model is loaded
    conflicts.set_inputs({(target.pid, 0): inputs(headroom_bytes=2000 * MIB)})
    target.new(1, DEVICE, LARGE)  # plenty of room
    assert not tick(line, probes, conflicts).windows.open

    conflicts.set_inputs({(target.pid, 0): inputs()})
    began = time.monotonic()
    target.new(2, DEVICE, LARGE)
    step = tick(line, probes, conflicts)
    while not step.windows.open:
        assert time.monotonic() - began < 1.0, "the conflict opens a window"
        time.sleep(TICK_SECONDS)
        step = tick(line, probes, conflicts)
    (window,) = step.windows.opened
    assert (window.kind, window.entity.pid) == ("token_conflict", target.pid)
    assert {item.column for item in window.evidence} >= {"predicted_bytes", "visual_tokens", "text_tokens"}
    assert conflicts.outcomes()["told"] == 1
    assert (conflicts.outcomes()["no_inputs"], conflicts.outcomes()["has_room"]) == (1, 1)
