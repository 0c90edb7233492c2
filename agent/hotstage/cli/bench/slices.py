# SPDX-License-Identifier: Apache-2.0
"""One measurement: everything attached to twins at once, one target, slices in turn; minima and medians out.

The form is always the same: see `METHOD`. It judges nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotstage.cli.bench.targets import Target, compiled, opened
from hotstage.cli.bench.variants import Variant, reference_types, variants
from hotstage.errors import HotstageError, PreflightError
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import call_spec_table
from hotstage.probes.loader import links
from hotstage.probes.loader.base import Link, LoadedPrograms, MapSizes, PointKind, Rung
from hotstage.probes.loader.libbpf import OBJECTS, LibbpfLoader
from hotstage.probes.loader.libbpf_object import Libbpf
from hotstage.probes.maps.kernel import KernelMaps

CALLS_PER_SLICE = 1000
VISION_IMAGE = 8 | 1 << 8
METHOD = (
    "twin functions in one assembled library, all variants attached at once; one target pinned to one CPU "
    "makes slices of 1,000 calls round robin; ns = least (median) slice / 1,000; ratio = least slice / least "
    "slice of the empty uprobe of the same run"
)
_ATTACH_SECONDS = 20.0


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
        folder = stack.enter_context(compiled("twins.S", "slices.c"))
        target = stack.enter_context(opened(folder / "libtwins.so", "twins"))
        present = [variant for variant in variants(loaded.rung) if _is_available(variant)]
        attached = _attach(programs, target, present)
        stack.callback(links.detach, attached)
        stack.enter_context(_other_tools(target, present))
        pid, slices = _run_slices(folder, present, rounds)
        return _result(loaded.rung, maps, pid, present, slices, rounds)


def _attach(programs: LoadedPrograms, target: Target, present: Sequence[Variant]) -> list[Link]:
    attached: list[Link] = []
    for variant in present:
        point = target.point(variant.twin, variant.call_id or 1, PointKind.TIMED)
        attached += [links.attach_side(programs, target.library, side, [point]) for side in variant.sides]
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
    ]
    command += [str(VISION_IMAGE), *(variant.twin for variant in present)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate("go\n", timeout=300)
    if process.returncode:
        raise HotstageError(f"the measured process failed with {process.returncode}")
    lines = output.splitlines()[1:]
    return process.pid, np.array([[float(word) for word in line.split()[1:]] for line in lines])


def _result(
    rung: Rung,
    maps: KernelMaps,
    pid: int,
    present: Sequence[Variant],
    slices: NDArray[np.float64],
    rounds: int,
) -> Run:
    sample = maps.read_slow(0)
    counted = int(sample.stats["count"][sample.keys["tgid"] == pid].sum())
    ours = sum(variant.call_id != 0 for variant in present)
    return Run(
        rung,
        tuple(Measured(variant, row / CALLS_PER_SLICE) for variant, row in zip(present, slices, strict=True)),
        made=ours * rounds * (CALLS_PER_SLICE + 1),
        counted=counted,
        lost=sum(maps.losses().values()),
    )


def _is_available(variant: Variant) -> bool:
    return variant.command is None or _tool(variant.command) is not None


def _tool(name: str) -> str | None:
    return (
        shutil.which(name) or shutil.which(f"{name}-bpfcc") or shutil.which(name, path="/usr/share/bcc/tools")
    )


@contextmanager
def _other_tools(target: Target, present: Sequence[Variant]) -> Iterator[None]:
    """Other tracers on their own twins, each in its own process, until the block ends."""
    running = [_start_tool(target, variant) for variant in present if variant.command is not None]
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(_ATTACH_SECONDS)


def _start_tool(target: Target, variant: Variant) -> subprocess.Popen[bytes]:
    place = f"{target.library.path}:{variant.twin}"
    scripts = {
        "bpftrace_count": ["-e", f"uprobe:{place} {{ @ = count(); }}"],
        "bpftrace_pair": [
            "-e",
            f"uprobe:{place} {{ @s[tid] = nsecs; }} "
            f"uretprobe:{place} /@s[tid]/ {{ @h = hist(nsecs - @s[tid]); delete(@s[tid]); }}",
        ],
        "funclatency": ["-F", place],
    }
    tool = _tool(variant.command or "")
    if tool is None:
        raise PreflightError(f"{variant.command} is not installed")
    process = subprocess.Popen(
        [tool, *scripts[variant.name]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _wait_until_probed(target, variant, process)
    return process


def _wait_until_probed(target: Target, variant: Variant, process: subprocess.Popen[bytes]) -> None:
    """Until the tool holds programs and perf events of its own."""
    deadline = time.monotonic() + _ATTACH_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise HotstageError(f"{variant.command} ended before it was attached to {target.library.path}")
        descriptors = Path(f"/proc/{process.pid}/fd")
        names = [str(entry.readlink()) for entry in descriptors.iterdir()]
        if any("bpf-prog" in name for name in names) and any("perf_event" in name for name in names):
            time.sleep(1.0)  # the last of its probes
            return
        time.sleep(0.05)
    raise HotstageError(f"{variant.command} was not attached within {_ATTACH_SECONDS:.0f} s")
