# SPDX-License-Identifier: Apache-2.0
"""Are counts exact while processes come and go, and when the agent starts anew? With the agent's own engine.

Long-lived processes call in bursts while short ones come, call and end. Then the engine is closed and another
one is started: what is called between them belongs to no epoch, and must appear in neither.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hotstage.cli.bench.callers import Burst, Caller, start_short
from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.errors import HotstageError
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.loader.base import Rung

_FAST_SECONDS = 0.1
_LONG = Burst(threads=3, launches=20_011, waits=2_003)
_SHORT = Burst(threads=2, launches=101, waits=13)
_SHORT_AT_ONCE = 4
_LINGER_SECONDS = 1.0
"""So that most short processes are taken out of the kernel's maps during the run, not after it."""
_ATTACH_SECONDS = 20.0


def churn_report(folder: Path, rung: Rung, long_processes: int, short_processes: int) -> dict[str, Any]:
    """`folder` holds the compiled `libtwins.so` and `callers`. Two epochs, each with all that it saw.

    Raises PreflightError, LoadError, PrivilegeError, and HotstageError when a process fails.
    """
    library = Path(shutil.copy(folder / "libtwins.so", folder / "libcuda.so.1"))
    with ExitStack() as stack:
        callers = [Caller(folder / "callers", library, _LONG) for _ in range(long_processes)]
        for caller in callers:
            stack.callback(caller.end)
        epochs = []
        for number in range(2):
            if number:
                _burst_unseen(callers)
            with _engine(rung, callers) as engine:
                epochs.append(_epoch(engine, folder / "callers", library, callers, short_processes // 2))
    return {
        "epochs": epochs,
        "short_processes": sum(epoch["short_processes"] for epoch in epochs),
        "unobserved": long_processes * _LONG.calls,
        "exact": all(epoch["made"] == epoch["counted"] and not epoch["lost"] for epoch in epochs)
        and not any(epoch["wrong_processes"] for epoch in epochs),
    }


@contextmanager
def _engine(rung: Rung, callers: list[Caller]) -> Iterator[ProbeEngine]:
    """A running engine that has attached to the callers' library."""
    config = ProbesConfig(loader="libbpf", rung=rung.value, xid=False, process_linger_seconds=_LINGER_SECONDS)
    engine = ProbeEngine(config, SystemClock())
    engine.start()
    try:
        deadline = time.monotonic() + _ATTACH_SECONDS
        while not {caller.pid for caller in callers} <= set(engine.pids()):
            if time.monotonic() > deadline:
                raise HotstageError(f"not attached to the calling processes within {_ATTACH_SECONDS:g} s")
            time.sleep(0.01)
        yield engine
    finally:
        engine.close()


def _burst_unseen(callers: list[Caller]) -> None:
    for caller in callers:
        caller.go()
    for caller in callers:
        caller.taken_seconds()


def _epoch(
    engine: ProbeEngine, program: Path, library: Path, callers: list[Caller], short_processes: int
) -> dict[str, Any]:
    """Let all call, read at the agent's ticks, and compare process by process."""
    for caller in callers:
        caller.go()
    made: dict[int, Burst] = {caller.pid: _LONG for caller in callers}
    running: list[subprocess.Popen[str]] = []
    ticks = 0
    while running or len(made) < len(callers) + short_processes or not all(c.has_answered() for c in callers):
        running = [process for process in running if _is_running(process)]
        while len(running) < _SHORT_AT_ONCE and len(made) < len(callers) + short_processes:
            running.append(start_short(program, library, _SHORT))
            if running[-1].pid in made:
                raise HotstageError("the kernel gave a pid twice in one run")
            made[running[-1].pid] = _SHORT
        if ticks % 10 == 0:
            engine.read_slow()
        engine.read_fast()
        ticks += 1
        time.sleep(_FAST_SECONDS / 4)
    for caller in callers:
        caller.taken_seconds()
    return _compare(engine, made, len(callers))


def _compare(engine: ProbeEngine, made: dict[int, Burst], long_processes: int) -> dict[str, Any]:
    names = {call_id: call.name for call_id, call in calls_by_id().items()}
    by_pid = engine.totals().by_pid
    counted, wrong = 0, 0
    for pid, burst in made.items():
        found = by_pid.get(pid, {})
        counts = {call: found[names[call]].counted if names[call] in found else 0 for call in burst.by_call}
        counted += sum(counts.values())
        wrong += counts != burst.by_call
    return {
        "made": sum(burst.calls for burst in made.values()),
        "counted": counted,
        "lost": sum(engine.read_fast().losses.values()),
        "short_processes": len(made) - long_processes,
        "wrong_processes": wrong,
    }


def _is_running(process: subprocess.Popen[str]) -> bool:
    code = process.poll()
    if code:
        raise HotstageError(f"a short process ended with {code}")
    return code is None
