# SPDX-License-Identifier: Apache-2.0
"""What a context switch costs with the scheduler's program on it, for followed threads and for others.

All programs of a tracepoint see every switch, so twins are impossible: the variants take turns, slice by
slice, in one run, and the least of each one's slices is compared.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotstage.cli.bench.targets import compiled
from hotstage.errors import HotstageError
from hotstage.probes import bpf
from hotstage.probes.loader.base import MapSizes
from hotstage.probes.loader.libbpf import OBJECTS, LibbpfLoader
from hotstage.probes.loader.typed_tracepoints import TypedTracepoints
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.layout import THREAD_STATE_DTYPE
from hotstage.probes.scheduler import SHARED_MAPS, SWITCHES

_ROUND_TRIPS = 500
_SWITCHES = 2 * _ROUND_TRIPS


class Pair:
    """Two processes on one CPU; each round trip is two switches."""

    def __init__(self, program: Path, cpu: int) -> None:
        self._process = subprocess.Popen(
            [program, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pids = (self._process.pid, self._answer())

    def switch_ns(self) -> float:
        """Nanoseconds a switch, over one slice; a few switches before it warm up."""
        self._told(20)
        return self._told(_ROUND_TRIPS) / _SWITCHES

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=10)

    def _told(self, round_trips: int) -> int:
        assert self._process.stdin
        self._process.stdin.write(f"{round_trips}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise HotstageError("the process that switches has ended", remedy="report it")
        return int(line)


@dataclass(frozen=True)
class _Variant:
    name: str
    pair: Pair
    programs: TypedTracepoints | None

    def slice_ns(self) -> float:
        if self.programs is None:
            return self.pair.switch_ns()
        self.programs.attach()
        try:
            return self.pair.switch_ns()
        finally:
            self.programs.detach()


def measure_switches(rounds: int) -> list[dict[str, Any]]:
    """One row a variant: least and median nanoseconds a switch, and what is added to an empty program.

    Raises LoadError or PreflightError where the programs cannot be loaded.
    """
    with _variants() as variants:
        slices = {variant.name: np.zeros(rounds) for variant in variants}
        for number in range(rounds):
            for variant in variants:
                slices[variant.name][number] = variant.slice_ns()
    least = {name: float(values.min()) for name, values in slices.items()}
    return [
        {
            "name": name,
            "ns_min": least[name],
            "ns_median": float(np.median(values)),
            "added_ns": None if name in ("untraced", "empty") else least[name] - least["empty"],
            "ratio": least[name] / least["empty"],
        }
        for name, values in slices.items()
    ]


@contextmanager
def _variants() -> Iterator[list[_Variant]]:
    cpu = max(os.sched_getaffinity(0))
    with ExitStack() as stack:
        program = stack.enter_context(compiled("switches.c")) / "switches"
        loader = LibbpfLoader()
        stack.callback(loader.close)
        loaded = loader.load(MapSizes())
        maps = KernelMaps(loaded.maps)
        stack.callback(maps.close)
        shared = {name: loaded.maps[name] for name in SHARED_MAPS}
        ours = _opened(
            stack, lambda: TypedTracepoints(OBJECTS / "sched.bpf.o", SWITCHES, entries={}, shared=shared)
        )
        empty = _opened(
            stack, lambda: TypedTracepoints(OBJECTS / "bench.bpf.o", ("empty_switch",), entries={}, shared={})
        )
        others, followed = Pair(program, cpu), Pair(program, cpu)
        stack.callback(others.close)
        stack.callback(followed.close)
        for pid in followed.pids:
            state = np.zeros(1, THREAD_STATE_DTYPE)
            state["tgid"], state["stage"] = pid, 8
            bpf.update(loaded.maps["threads"], struct.pack("<I", pid), state.tobytes())
        yield [
            _Variant("untraced", others, None),
            _Variant("empty", others, empty),
            _Variant("not followed", others, ours),
            _Variant("followed", followed, ours),
            _Variant("empty again", followed, empty),
        ]


def _opened(stack: ExitStack, opening: Callable[[], TypedTracepoints]) -> TypedTracepoints:
    programs = opening()
    stack.callback(programs.close)
    return programs
