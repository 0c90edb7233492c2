# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench counting`: are counts exact at full speed, over several processes and threads?"""

from __future__ import annotations

import resource
import select
import subprocess
import time
from contextlib import ExitStack
from typing import Any

import click

from hotstage.cli.bench.targets import Target, compiled, host_facts, opened
from hotstage.cli.bench.variants import LAUNCH_CALL, WAIT_CALL
from hotstage.cli.terminal import print_json
from hotstage.errors import HotstageError
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import call_spec_table
from hotstage.probes.loader import links
from hotstage.probes.loader.base import AttachPoint, MapSizes, PointKind, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader
from hotstage.probes.maps.kernel import KernelMaps

CALLS_PER_SECOND_BUDGET = 200_000
METHOD = (
    "processes with several threads each make launches and waits as fast as they can, while the maps are "
    "read at the agent's ticks (10 Hz and 1 Hz); counted = made, key by key, and every loss counter is zero"
)
_FAST_SECONDS = 0.1
_FAILED, _DEGRADED = 1, 3
# Primes: a lost or doubled call shows.
_LAUNCHES_PER_ROUND, _WAITS_PER_ROUND = 100_003, 10_007


@click.command()
@click.option(
    "--rung", type=click.Choice([str(rung) for rung in Rung]), help="Force a rung; default: the best."
)
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--threads", type=click.IntRange(1, 64), default=3, show_default=True, help="In each process.")
@click.option("--factor", type=click.IntRange(1, 100), default=3, show_default=True, help="Longer runs.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def counting(rung: str | None, processes: int, threads: int, factor: int, as_json: bool) -> int:
    """Count calls made as fast as the machine can, and compare with what was made.

    Exit code 1 when a count is wrong, 3 when the machine did not reach the rate.
    """
    report = counting_report(Rung(rung) if rung else None, processes, threads, factor)
    if as_json:
        print_json(report)
    else:
        click.echo(
            f"rung {report['host']['rung']}: {report['counted']:,} of {report['made']:,} calls counted, "
            f"{report['lost']} lost, {report['calls_per_second']:,.0f} calls/s, "
            f"reader {report['agent_cpu_ratio']:.1%} of one core"
        )
    if not report["exact"]:
        return _FAILED
    return 0 if report["calls_per_second"] >= CALLS_PER_SECOND_BUDGET else _DEGRADED


def counting_report(rung: Rung | None, processes: int, threads: int, factor: int) -> dict[str, Any]:
    """The report of schemas/bench.json. Raises PreflightError, LoadError, PrivilegeError."""
    with ExitStack() as stack:
        loader = LibbpfLoader()
        stack.callback(loader.close)
        loaded = loader.load(MapSizes(), rung)
        maps = KernelMaps(loaded.maps)
        stack.callback(maps.close)
        maps.prepare(call_spec_table(LIBRARIES), slow_call_ns=0, event_gap_ns=0)
        folder = stack.enter_context(compiled("twins.S", "callers.c"))
        target = stack.enter_context(opened(folder / "libtwins.so", "twins"))
        stack.callback(links.detach, loader.attach(target.library, _points(target)).links)
        launches, waits = _LAUNCHES_PER_ROUND * factor, _WAITS_PER_ROUND * factor
        command = [
            str(folder / "callers"),
            str(folder / "libtwins.so"),
            str(threads),
            str(launches),
            str(waits),
        ]
        running = [stack.enter_context(_started(command)) for _ in range(processes)]
        seconds, cpu_seconds = _run(running, maps)
        expected = {LAUNCH_CALL: threads * launches, WAIT_CALL: threads * waits}
        made, counted, is_exact = _compare(maps, running, expected)
        lost = sum(maps.losses().values())
        for process in running:
            process.communicate("end\n", timeout=30)
        return {
            "bench": "counting",
            "host": host_facts("libbpf", loaded.rung),
            "method": METHOD,
            "exact": is_exact and lost == 0,
            "made": made,
            "counted": counted,
            "lost": lost,
            "calls_per_second": made / seconds,
            "agent_cpu_ratio": cpu_seconds / seconds,
            "processes": processes,
            "threads": threads,
            "map_bytes": maps.map_bytes(),
        }


def _points(target: Target) -> list[AttachPoint]:
    return [
        target.point("twin_launch", LAUNCH_CALL, PointKind.LAUNCH),
        target.point("twin_timed", WAIT_CALL, PointKind.TIMED),
    ]


def _started(command: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _line(process, "ready")
    return process


def _run(running: list[subprocess.Popen[str]], maps: KernelMaps) -> tuple[float, float]:
    """Let all go, reading at both ticks until all are done: seconds, and our own CPU seconds in them."""
    began, cpu_began = time.perf_counter(), _own_cpu_seconds()
    for process in running:
        if process.stdin:
            process.stdin.write("go\n")
            process.stdin.flush()
    ticks = 0
    while any(not _has_answered(process) for process in running):
        maps.read_fast(time.monotonic_ns())
        if ticks % 10 == 0:
            maps.read_slow(time.monotonic_ns())
        ticks += 1
        time.sleep(_FAST_SECONDS)
    cpu_seconds = _own_cpu_seconds() - cpu_began
    wall_seconds = time.perf_counter() - began
    taken = max(int(_line(process, "made").split()[2]) for process in running) / 1e9
    return taken, cpu_seconds * taken / wall_seconds


def _compare(
    maps: KernelMaps, running: list[subprocess.Popen[str]], expected: dict[int, int]
) -> tuple[int, int, bool]:
    """Made, counted, and whether each process has exactly its own calls."""
    sample = maps.read_slow(time.monotonic_ns())
    is_exact, counted = True, 0
    for process in running:
        for call, made in expected.items():
            ours = (sample.keys["tgid"] == process.pid) & (sample.keys["call"] == call)
            found = int(sample.stats["count"][ours].sum())
            counted += found
            is_exact &= found == made
    return sum(expected.values()) * len(running), counted, is_exact


def _has_answered(process: subprocess.Popen[str]) -> bool:
    """Whether the target has told what it made."""
    if process.poll() is not None:
        raise HotstageError(f"a calling process ended with {process.returncode}")
    return process.stdout is None or bool(select.select([process.stdout], [], [], 0)[0])


def _line(process: subprocess.Popen[str], word: str) -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line.startswith(word):
        raise HotstageError(f"a calling process answered {line!r}, not {word}")
    return line


def _own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
