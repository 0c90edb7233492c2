# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench counting`: are counts exact at full speed, over several processes and threads?"""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from typing import Any

import click

from hotstage.cli.bench.callers import LAUNCHES_PER_ROUND, WAITS_PER_ROUND, Burst, Caller
from hotstage.cli.bench.churn import churn_report
from hotstage.cli.bench.targets import Target, compiled, host_facts, opened
from hotstage.cli.bench.variants import LAUNCH_CALL, WAIT_CALL
from hotstage.cli.terminal import print_json
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import call_spec_table
from hotstage.probes.loader import links
from hotstage.probes.loader.base import AttachPoint, MapSizes, PointKind, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader
from hotstage.probes.maps.kernel import KernelMaps

CALLS_PER_SECOND_BUDGET = 200_000
METHOD = (
    "processes with several threads each make launches and waits as fast as they can, while the maps are "
    "read at the agent's ticks (10 Hz and 1 Hz); then the agent's own engine counts two epochs while short "
    "processes come and go, with calls in between that it must not count; counted = made, process by process "
    "and call by call, and every loss counter is zero"
)
_FAST_SECONDS = 0.1
_FAILED, _DEGRADED = 1, 3


@click.command()
@click.option(
    "--rung", type=click.Choice([str(rung) for rung in Rung]), help="Force a rung; default: the best."
)
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--threads", type=click.IntRange(1, 64), default=3, show_default=True, help="In each process.")
@click.option("--factor", type=click.IntRange(1, 100), default=3, show_default=True, help="Longer runs.")
@click.option(
    "--churn",
    type=click.IntRange(0, 20_000),
    default=200,
    show_default=True,
    help="Short processes that come and go in a second part, with a restart in its middle; 0 = without it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def counting(rung: str | None, processes: int, threads: int, factor: int, churn: int, as_json: bool) -> int:
    """Count calls made as fast as the machine can, and compare with what was made.

    Exit code 1 when a count is wrong, 3 when the machine did not reach the rate.
    """
    report = counting_report(Rung(rung) if rung else None, processes, threads, factor, churn)
    if as_json:
        print_json(report)
    else:
        counts = f"{report['counted']:,} of {report['made']:,} calls counted, {report['lost']} lost"
        click.echo(f"at full speed, rung {report['host']['rung']}: {counts}")
        click.echo(
            f"  {report['calls_per_second']:,.0f} calls/s; "
            f"reading them took {report['agent_cpu_ratio']:.1%} of one core"
        )
        _print_churn(report["churn"])
    if not report["exact"]:
        return _FAILED
    return 0 if report["calls_per_second"] >= CALLS_PER_SECOND_BUDGET else _DEGRADED


def _print_churn(churn: dict[str, Any] | None) -> None:
    if churn is None:
        return
    epochs = " and ".join(f"{epoch['counted']:,} of {epoch['made']:,}" for epoch in churn["epochs"])
    lost = sum(epoch["lost"] for epoch in churn["epochs"])
    click.echo(
        f"with {churn['short_processes']} short processes: {epochs} calls counted before and after "
        f"a restart, {lost} lost; {churn['unobserved']:,} made during it, counted in neither"
    )


def counting_report(
    rung: Rung | None, processes: int, threads: int, factor: int, short_processes: int = 0
) -> dict[str, Any]:
    """The report of schemas/bench.json; `churn` is None without short processes.

    Raises PreflightError, LoadError, PrivilegeError, and HotstageError when a calling process fails.
    """
    report = _steady_report(rung, processes, threads, factor)
    if not short_processes:
        return {**report, "churn": None}
    with compiled("twins.S", "callers.c") as folder:
        churn = churn_report(folder, Rung(report["host"]["rung"]), processes, short_processes)
    return {**report, "churn": churn, "exact": report["exact"] and churn["exact"]}


def _steady_report(rung: Rung | None, processes: int, threads: int, factor: int) -> dict[str, Any]:
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
        burst = Burst(threads, LAUNCHES_PER_ROUND * factor, WAITS_PER_ROUND * factor)
        callers = [Caller(folder / "callers", folder / "libtwins.so", burst) for _ in range(processes)]
        for caller in callers:
            stack.callback(caller.end)
        seconds, cpu_seconds = _run(callers, maps)
        counted, is_exact = _compare(maps, callers, burst)
        made = burst.calls * processes
        lost = sum(maps.losses().values())
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


def _run(callers: list[Caller], maps: KernelMaps) -> tuple[float, float]:
    """Let all go, reading at both ticks until all are done: seconds, and our own CPU seconds in them."""
    began, cpu_began = time.perf_counter(), _own_cpu_seconds()
    for caller in callers:
        caller.go()
    ticks = 0
    while any(not caller.has_answered() for caller in callers):
        maps.read_fast(time.monotonic_ns())
        if ticks % 10 == 0:
            maps.read_slow(time.monotonic_ns())
        ticks += 1
        time.sleep(_FAST_SECONDS)
    cpu_seconds = _own_cpu_seconds() - cpu_began
    wall_seconds = time.perf_counter() - began
    taken = max(caller.taken_seconds() for caller in callers)
    return taken, cpu_seconds * taken / wall_seconds


def _compare(maps: KernelMaps, callers: list[Caller], burst: Burst) -> tuple[int, bool]:
    """Counted, and whether each process has exactly its own calls."""
    sample = maps.read_slow(time.monotonic_ns())
    is_exact, counted = True, 0
    for caller in callers:
        for call, made in burst.by_call.items():
            ours = (sample.keys["tgid"] == caller.pid) & (sample.keys["call"] == call)
            found = int(sample.stats["count"][ours].sum())
            counted += found
            is_exact &= found == made
    return counted, is_exact


def _own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
