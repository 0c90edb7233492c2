# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench overhead`: what a probed call costs, as ratios to an empty uprobe of the same run."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from hotstage.cli.bench.slices import METHOD, Measured, measure
from hotstage.cli.bench.switches import measure_switches
from hotstage.cli.bench.targets import host_facts, opened, simulated_libcuda
from hotstage.cli.bench.variants import MEANINGS
from hotstage.cli.call_costs import cost_of_a_call
from hotstage.cli.terminal import print_json, print_table
from hotstage.errors import PreflightError
from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.loader import links
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader

BUDGETS = {"launch": 1.25, "timed": 2.2}
"""Ratios to an empty uprobe, the same on all rungs. Where a trap is cheap or a look at the clock dear, what
programs do weighs more: `reference_pair`, the shortest pair that takes time, says how much is the host's.
"""
EMULATED_RATIO_BUDGET = 0.98
DETACH_SECONDS_BUDGET = 1.0
_SWITCH_ROUNDS = 60
_FAILED, _DEGRADED = 1, 3


@click.command()
@click.option(
    "--rung", type=click.Choice([str(rung) for rung in Rung]), help="Force a rung; default: the best."
)
@click.option(
    "--rounds", type=click.IntRange(40, 10_000), default=120, show_default=True, help="Slices each."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def overhead(rung: str | None, rounds: int, as_json: bool) -> int:
    """What a probed call costs: our programs, empty and hand-written ones, on twins of one function.

    Exit code 3 when a budget is missed, 1 when the run does not count.
    """
    report = overhead_report(Rung(rung) if rung else None, rounds)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if not report["exact"]:
        return _FAILED
    return 0 if report["within_budget"] else _DEGRADED


def overhead_report(rung: Rung | None, rounds: int) -> dict[str, Any]:
    """The report of schemas/bench.json. Raises as `measure`."""
    run = measure(rung, rounds)
    minimum = {row.variant.name: float(row.call_ns.min()) for row in run.measured}
    placement = measure_placement(run.rung)
    ratios = {name: value / minimum["empty"] for name, value in minimum.items()}
    is_quick = run.rung is Rung.PERF or placement["detach_seconds"] <= DETACH_SECONDS_BUDGET
    return {
        "bench": "overhead",
        "host": host_facts("libbpf", run.rung),
        "method": METHOD,
        "variants": [_variant(row, minimum) for row in run.measured],
        "not_measured": dict(run.absent),
        "governor_costs": run.costs.as_json(),
        "placement": placement,
        "switches": _switches(rounds),
        "exact": run.made == run.counted and run.lost == 0,
        "made": run.made,
        "counted": run.counted,
        "lost": run.lost,
        "budgets": {
            **BUDGETS,
            "emulated_ratio": EMULATED_RATIO_BUDGET,
            "detach_seconds": DETACH_SECONDS_BUDGET,
        },
        "within_budget": all(ratios[name] <= limit for name, limit in BUDGETS.items())
        and placement["emulated_ratio"] >= EMULATED_RATIO_BUDGET
        and is_quick,
    }


def measure_placement(rung: Rung) -> dict[str, Any]:
    """How the simulated libcuda is probed: share of cheap points, links, seconds to attach and detach."""
    with TemporaryDirectory(prefix="hotstage-bench-") as folder:
        stub = simulated_libcuda(Path(folder))
        loader = LibbpfLoader()
        try:
            loader.load(MapSizes(), rung)
            with opened(stub, CUDA_DRIVER.kind) as target:
                points = [
                    target.point(symbol, call.call_id, call.kind)
                    for symbol, call in CUDA_DRIVER.by_symbol().items()
                    if symbol in target.offsets and (rung is not Rung.PERF or call.is_essential)
                ]
                attachment = loader.attach(target.library, points)
                began = time.perf_counter()
                count = sum(link.in_kernel for link in attachment.links)
                links.detach(attachment.links)
        finally:
            loader.close()
    return {
        "library": stub.name,
        "symbols": len(points),
        "emulated": sum(point.is_emulated for point in points),
        "emulated_ratio": sum(point.is_emulated for point in points) / max(len(points), 1),
        "refused": len(attachment.refused),
        "links": count,
        "attach_seconds": attachment.seconds,
        "detach_seconds": time.perf_counter() - began,
    }


def _switches(rounds: int) -> list[dict[str, Any]]:
    """What a context switch costs; empty where the kernel does not take the scheduler's program."""
    try:
        return measure_switches(min(rounds, _SWITCH_ROUNDS))
    except PreflightError as error:
        click.echo(f"context switches are not measured: {error.message}", err=True)
        return []


def _variant(row: Measured, minimum: dict[str, float]) -> dict[str, Any]:
    name, same_shape = row.variant.name, row.variant.same_shape
    return {
        "name": name,
        "ns_min": minimum[name],
        "ns_median": float(np.median(row.call_ns)),
        "ratio": minimum[name] / minimum["empty"],
        "same_shape": same_shape,
        "added_ns": minimum[name] - minimum[same_shape] if same_shape else None,
    }


def _print(report: dict[str, Any]) -> None:
    host, placement = report["host"], report["placement"]
    click.echo(f"rung {host['rung']}, kernel {host['kernel']}, {host['cpu']}")
    rows = [
        (row["name"], f"{row['ns_min']:.0f}", f"{row['ns_median']:.0f}", f"{row['ratio']:.2f}", _added(row))
        for row in report["variants"]
    ]
    print_table(("variant", "min ns", "median ns", "ratio", "added to same shape"), rows, empty="nothing")
    for row in report["variants"]:
        click.echo(f"  {row['name']}: {MEANINGS[row['name']]}")
    click.echo(
        f"{placement['emulated']} of {placement['symbols']} probes on an emulated instruction, "
        f"{placement['links']} links, detached in {placement['detach_seconds']:.2f} s"
    )
    for row in report["switches"]:
        added = "" if row["added_ns"] is None else f", {row['added_ns']:+.0f} ns to an empty program"
        click.echo(f"context switch, {row['name']}: {row['ns_min']:.0f} ns{added}")
    click.echo(f"what the governor reckons with: {cost_of_a_call(report['governor_costs'])}")
    for name, reason in report["not_measured"].items():
        click.echo(f"not measured: {name}: {reason}")
    verdict = "within" if report["within_budget"] else "NOT within"
    counts = f"{report['counted']:,} of {report['made']:,} calls counted, {report['lost']} lost"
    click.echo(f"{counts}; {verdict} the budgets")


def _added(row: dict[str, Any]) -> str | None:
    return None if row["added_ns"] is None else f"{row['added_ns']:+.0f} ns to {row['same_shape']}"
