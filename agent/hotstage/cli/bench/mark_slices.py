# SPDX-License-Identifier: Apache-2.0
"""One measurement of marks: the same program twice from C and twice from Python, one of each with probes.

Two copies of the library, so that what nobody listens to and what is listened to are measured in one run,
slice by slice in turn. It judges nothing.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

import hotstage_marks
from hotstage.cli.bench.targets import compiled, opened
from hotstage.errors import HotstageError
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.marks import MARKS
from hotstage.probes.catalogue.spec import call_spec_table
from hotstage.probes.loader import links
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader
from hotstage.probes.maps.kernel import KernelMaps

CALLS_PER_SLICE = 1000
KINDS = {
    "c": ("stage", "span", "tokens", "batch of 8", "request"),
    "python": ("stage", "span", "tokens", "batch of 8", "request", "decorated call"),
}
"""In the order in which the programs print them."""
_PACKAGE = Path(hotstage_marks.__file__).parent
_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class MarkCost:
    """ns of one mark in each slice, float64 (rounds,)."""

    language: str
    kind: str
    is_listened_to: bool
    call_ns: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MarkRun:
    """A whole run; it counts only if every request that ended was seen, and nothing was lost."""

    rung: Rung
    costs: tuple[MarkCost, ...]
    requests_ended: int
    requests_seen: int
    lost: int


def measure_marks(rung: Rung | None, rounds: int) -> MarkRun:
    """Attach to one copy, run all, read. Raises PreflightError, LoadError, PrivilegeError, HotstageError."""
    with ExitStack() as stack:
        loader = LibbpfLoader()
        stack.callback(loader.close)
        loaded = loader.load(MapSizes(), rung)
        maps = KernelMaps(loaded.maps)
        stack.callback(maps.close)
        maps.prepare(call_spec_table(LIBRARIES), slow_call_ns=0, event_gap_ns=0)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hotstage-bench-")))
        for copy in ("idle", "listening"):
            shutil.copytree(
                _PACKAGE, folder / copy / _PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__")
            )
        target = stack.enter_context(opened(_library(folder / "listening"), MARKS.kind))
        points = [target.point(symbol, call.call_id, call.kind) for symbol, call in MARKS.by_symbol().items()]
        stack.callback(links.detach, loader.attach(target.library, points).links)
        programs = stack.enter_context(compiled("marks_calls.c", include=_PACKAGE / "include"))
        running = {
            (language, copy == "listening"): stack.enter_context(_started(language, programs, folder / copy))
            for copy in ("idle", "listening")
            for language in KINDS
        }
        for (language, is_listened_to), process in running.items():
            _check_watched(process, language, is_listened_to=is_listened_to)
        return _run(loaded.rung, maps, running, rounds)


def _run(
    rung: Rung, maps: KernelMaps, running: dict[tuple[str, bool], subprocess.Popen[str]], rounds: int
) -> MarkRun:
    slices: dict[tuple[str, bool], list[list[float]]] = {key: [] for key in running}
    seen = 0
    for _ in range(rounds):
        for key, process in running.items():
            slices[key].append([float(word) for word in _ask(process).split()])
            seen += len(maps.read_fast(time.monotonic_ns()).finished)  # a full ring makes a mark look cheap
    costs = tuple(
        MarkCost(language, kind, is_listened_to, np.array(taken)[:, number] / CALLS_PER_SLICE)
        for (language, is_listened_to), taken in slices.items()
        for number, kind in enumerate(KINDS[language])
    )
    return MarkRun(
        rung,
        costs,
        requests_ended=len(KINDS) * rounds * (CALLS_PER_SLICE + 1),
        requests_seen=seen,
        lost=sum(maps.losses().values()),
    )


def _library(packages: Path) -> Path:
    return packages / _PACKAGE.name / "libhotstage_marks.so"


@contextmanager
def _started(language: str, programs: Path, packages: Path) -> Iterator[subprocess.Popen[str]]:
    command = {
        "c": [str(programs / "marks_calls"), str(_library(packages))],
        "python": [sys.executable, "-P", str(Path(__file__).with_name("marks_calls.py")), str(packages)],
    }[language]
    cpu = max(os.sched_getaffinity(0))
    with subprocess.Popen(
        [*command, str(cpu), str(CALLS_PER_SLICE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _check_watched(process: subprocess.Popen[str], language: str, *, is_listened_to: bool) -> None:
    """Each program says what it found: another watcher's probes would make the idle copy dear."""
    word, watched = _line(process).split()
    if (word, bool(int(watched))) != ("ready", is_listened_to):
        found = "somebody else listens to" if not is_listened_to else "no probe is on"
        raise HotstageError(f"{found} the marks of the measured program ({language})")


def _ask(process: subprocess.Popen[str]) -> str:
    if process.stdin:
        process.stdin.write("go\n")
        process.stdin.flush()
    return _line(process)


def _line(process: subprocess.Popen[str]) -> str:
    if process.stdout and select.select([process.stdout], [], [], _ANSWER_SECONDS)[0]:
        line = process.stdout.readline()
        if line:
            return line
    raise HotstageError(f"the marking process {process.pid} did not answer, code {process.poll()}")
