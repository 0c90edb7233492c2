# SPDX-License-Identifier: Apache-2.0
"""The vendor's own libraries, for tests that need no GPU: fetched into a temporary directory, never kept, and
called in children of a process that stays.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from hotstage.probes.coverage import LibraryCoverage
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.trial.report import PlacementVerdict

# Each in a child of its own, for a crash in the library is to end none of the others.
_PROGRAM = """
import ctypes, json, os, sys
library = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
class Id(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 128)]
answers = {}
for name, times, arguments in json.loads(sys.argv[2]):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        pointer, config = ctypes.byref(ctypes.c_void_p()), ctypes.create_string_buffer(64)
        properties = ctypes.create_string_buffer(1032)
        function = getattr(library, name)
        for _ in range(times):
            given = [ctypes.c_void_p(a) if type(a) is int and a < 3 else a for a in eval(f"[{arguments}]")]
            result = function(*given)
        files = {os.path.basename(line.split()[-1]) for line in open("/proc/self/maps")}
        mapped = sorted(name for name in files if ".so" in name)
        os.write(writing, json.dumps([result, mapped]).encode())
        os._exit(0)
    os.close(writing)
    said = os.fdopen(reading).read()
    os.waitpid(child, 0)
    answers[name] = [child, *json.loads(said or "[-1, []]")]
print(json.dumps(answers), flush=True)
sys.stdin.readline()
"""


Call = tuple[str, int, str]
"""Name, how often, with what (ctypes; `pointer`, `config`, `properties` and NCCL's `Id` are there)."""


@dataclass(frozen=True)
class Answer:
    """`result` of the last call, -1 where the child ended in it; names of the libraries that it had then."""

    pid: int
    result: int
    mapped: tuple[str, ...]


def fetch(requirement: str, pattern: str, folder: Path, *, seconds: float = 60) -> Path:
    """The one library that a wheel has under that name; skips the test where it cannot be had."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
    try:
        subprocess.run(
            [*command, "--target", folder, requirement], check=True, capture_output=True, timeout=seconds
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{requirement} cannot be fetched: {error}")
    (found,) = folder.rglob(pattern)
    return found


def call_in_children(
    library: str, calls: Sequence[Call], stack: ExitStack, before: Callable[[int], None] = lambda pid: None
) -> dict[str, Answer]:
    """By name. `before` has the pid of the process that has opened the library and called nothing yet."""
    target = subprocess.Popen(
        [sys.executable, "-S", "-c", _PROGRAM, library, json.dumps(calls)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    stack.callback(target.communicate)
    assert target.stdin and target.stdout
    assert target.stdout.readline() == "ready\n"
    before(target.pid)
    target.stdin.write("\n")
    target.stdin.flush()
    answers = json.loads(target.stdout.readline())
    return {name: Answer(pid, result, tuple(mapped)) for name, (pid, result, mapped) in answers.items()}


def libraries_of(engine: ProbeEngine, pid: int, kind: str) -> list[LibraryCoverage]:
    """What coverage says of the libraries of that kind in a process."""
    return [
        library
        for process in engine.coverage().processes
        if process.pid == pid
        for library in process.libraries
        if library.kind == kind
    ]


def assert_tried(library: LibraryCoverage, function: str) -> None:
    """It was probed in a process of its own first, on that function, where it was counted and right."""
    trial = library.trial
    assert trial is not None and trial.placement is PlacementVerdict.VERIFIED, trial
    assert trial.functions == (function,) and trial.calls == 11 and trial.reason is None
    print(f"{library.path}: {trial.calls} calls of {function} in {trial.seconds * 1e3:.0f} ms")


def assert_untried(library: LibraryCoverage, reason: str) -> None:
    """Its trial could not say anything, and says why."""
    trial = library.trial
    assert trial is not None and trial.placement is PlacementVerdict.UNVERIFIED, trial
    assert trial.reason is not None and reason in trial.reason and trial.calls == 0, trial
