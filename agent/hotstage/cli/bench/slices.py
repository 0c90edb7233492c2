# SPDX-License-Identifier: Apache-2.0
"""One measurement: everything attached to twins at once, one target, slices in turn; minima and medians out.

The form is always the same: see `METHOD`. It judges nothing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotstage.cli.bench.peers import peers
from hotstage.cli.bench.targets import Target, compiled, opened
from hotstage.cli.bench.variants import HEAD_CALLS, Variant, of_wait, reference_types, variants
from hotstage.clock import SystemClock
from hotstage.errors import HotstageError
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import call_spec_table
from hotstage.probes.loader import links
from hotstage.probes.loader.base import Link, LoadedPrograms, MapSizes, PointKind, Rung
from hotstage.probes.loader.libbpf import OBJECTS, LibbpfLoader
from hotstage.probes.loader.libbpf_object import Libbpf
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.levels import LevelMaps
from hotstage.probes.restraint.costs import Costs, calibrate

CALLS_PER_SLICE = 1000
VISION_IMAGE = 8 | 1 << 8
METHOD = (
    "twin functions in one assembled library, all variants attached at once; one target pinned to one CPU "
    "makes slices of 1,000 calls round robin; ns = least (median) slice / 1,000; ratio = least slice / least "
    "slice of the empty uprobe of the same run"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """ns per call of one variant's slices, float64 (rounds,)."""

    variant: Variant
    call_ns: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run; it counts only if `counted` equals `made` and nothing was lost."""

    rung: Rung
    measured: tuple[Measured, ...]
    made: int
    counted: int
    lost: int
    absent: Mapping[str, str]
    """Variants that could not be measured, and why."""
    costs: Costs
    """What the agent's governor would reckon with on this host."""


def measure(rung: Rung | None, rounds: int) -> Run:
    """Load, attach, run, read. Raises PreflightError, LoadError, PrivilegeError."""
    with ExitStack() as stack:
        loader = LibbpfLoader()
        stack.callback(loader.close)
        loaded = loader.load(MapSizes(), rung)
        references = Libbpf().load(OBJECTS / "bench.bpf.o", reference_types(loaded.rung))
        stack.callback(references.close)
        extra = {name: references.program_fd(name) for name in reference_types(loaded.rung)}
        programs = LoadedPrograms(loaded.rung, {**loaded.programs, **extra}, loaded.maps)
        maps = KernelMaps(loaded.maps)
        stack.callback(maps.close)
        maps.prepare(call_spec_table(LIBRARIES), slow_call_ns=0, event_gap_ns=0)
        costs = calibrate(loader, maps, LevelMaps(loaded.maps), SystemClock(), with_nvtx=True)
        folder = stack.enter_context(compiled("twins.S", "slices.c"))
        target = stack.enter_context(opened(folder / "libtwins.so", "twins"))
        every = variants(loaded.rung)
        absent = stack.enter_context(peers(target, every))
        present = [variant for variant in every if variant.name not in absent]
        stack.callback(links.detach, _attach(programs, target, present))
        pid, slices = _run_slices(folder, present, rounds)
        return _result(loaded.rung, maps, pid, present, slices, rounds, absent, costs)


def _attach(programs: LoadedPrograms, target: Target, present: Sequence[Variant]) -> list[Link]:
    attached: list[Link] = []
    for variant in present:
        point = target.point(variant.twin, variant.call_id or 1, PointKind.TIMED)
        points = [point]
        if variant.undo is not None:
            points.append(target.point(*variant.undo, PointKind.TIMED))
        attached += [links.attach_side(programs, target.library, side, points) for side in variant.sides]
        if variant.wait is not None:
            wait = [target.point(*variant.wait, PointKind.TIMED)]
            attached += [
                links.attach_side(programs, target.library, side, wait) for side in of_wait(programs.rung)
            ]
    mark = target.point("hotstage_mark_stage_begin", 480, PointKind.STAGE_BEGIN)
    attached += links.attach(programs, target.library, [mark]).links
    return attached


def _run_slices(folder: Path, present: Sequence[Variant], rounds: int) -> tuple[int, NDArray[np.float64]]:
    """Slices in ns, float64 (variants, rounds)."""
    cpu = max(os.sched_getaffinity(0))
    command = [
        str(folder / "slices"),
        str(folder / "libtwins.so"),
        str(cpu),
        str(rounds),
        str(CALLS_PER_SLICE),
        str(HEAD_CALLS),
    ]
    command += [str(VISION_IMAGE), *map(_names, present)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate("go\n", timeout=300)
    if process.returncode:
        raise HotstageError(f"the measured process failed with {process.returncode}")
    lines = output.splitlines()[1:]
    return process.pid, np.array([[float(word) for word in line.split()[1:]] for line in lines])


def _names(variant: Variant) -> str:
    if not variant.is_marked:
        return f"{variant.twin}~{variant.wait[0] if variant.wait else ''}"
    return variant.twin if variant.undo is None else f"{variant.twin}+{variant.undo[0]}"


def _result(
    rung: Rung,
    maps: KernelMaps,
    pid: int,
    present: Sequence[Variant],
    slices: NDArray[np.float64],
    rounds: int,
    absent: Mapping[str, str],
    costs: Costs,
) -> Run:
    sample = maps.read_slow(0)
    counted = int(sample.stats["count"][sample.keys["tgid"] == pid].sum())
    ours = sum((variant.call_id != 0) + (variant.undo is not None) for variant in present)
    waits = sum(variant.wait is not None for variant in present) * (CALLS_PER_SLICE // HEAD_CALLS + 1)
    return Run(
        rung,
        tuple(
            Measured(variant, row / (CALLS_PER_SLICE * (2 if variant.undo else 1)))
            for variant, row in zip(present, slices, strict=True)
        ),
        made=rounds * (ours * (CALLS_PER_SLICE + 1) + waits),
        counted=counted,
        lost=sum(maps.losses().values()),
        absent=absent,
        costs=costs,
    )
