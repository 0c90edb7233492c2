# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench marks`: what a mark costs the server that makes it, unheard and with probes attached."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from hotstage.cli.bench.mark_slices import CALLS_PER_SLICE, MarkCost, measure_marks
from hotstage.cli.bench.targets import host_facts
from hotstage.cli.terminal import print_json, print_table, say
from hotstage.probes.loader.base import Rung

BUDGETS = {"idle_ns_c": 100.0, "idle_ns_python": 500.0}
"""Of one mark, as `METHOD` says what that is."""
METHOD = (
    "one mark = one stage of an open request, begin and end together, with modality and tokens; two copies "
    "of the library, probes on one; the same program on each copy, from C and Python, pinned to one CPU, "
    f"makes slices of {CALLS_PER_SLICE:,} marks of each kind round robin; ns = least (median) slice / "
    f"{CALLS_PER_SLICE:,}, the loop included; the rings are drained between slices"
)
_FAILED, _DEGRADED = 1, 3


@click.command()
@click.option(
    "--rung", type=click.Choice([str(rung) for rung in Rung]), help="Force a rung; default: the best."
)
@click.option("--rounds", type=click.IntRange(40, 10_000), default=60, show_default=True, help="Slices each.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def marks(rung: str | None, rounds: int, as_json: bool) -> int:
    """What a mark costs, from C and from Python, with nobody listening and with probes attached.

    Exit code 3 when a budget is missed, 1 when the run does not count.
    """
    report = marks_report(Rung(rung) if rung else None, rounds)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if not report["exact"]:
        return _FAILED
    return 0 if report["within_budget"] else _DEGRADED


def marks_report(rung: Rung | None, rounds: int) -> dict[str, Any]:
    """The report of schemas/bench.json. Raises as `measure_marks`."""
    run = measure_marks(rung, rounds)
    published = {
        f"{'listening' if cost.is_listened_to else 'idle'}_ns_{cost.language}": float(cost.call_ns.min())
        for cost in run.costs
        if cost.kind == "stage"
    }
    return {
        "bench": "marks",
        "host": host_facts("libbpf", run.rung),
        "method": METHOD,
        **published,
        "marks": [_row(cost) for cost in run.costs],
        "exact": run.requests_ended == run.requests_seen and run.lost == 0,
        "made": run.requests_ended,
        "counted": run.requests_seen,
        "lost": run.lost,
        "budgets": BUDGETS,
        "within_budget": all(published[name] <= limit for name, limit in BUDGETS.items()),
    }


def _row(cost: MarkCost) -> dict[str, Any]:
    return {
        "language": cost.language,
        "kind": cost.kind,
        "listening": cost.is_listened_to,
        "ns_min": float(cost.call_ns.min()),
        "ns_median": float(np.median(cost.call_ns)),
    }


def _print(report: dict[str, Any]) -> None:
    host = report["host"]
    say(f"rung {host['rung']}, kernel {host['kernel']}, {host['cpu']}, Python {host['versions']['python']}")
    cells: dict[tuple[str, str], dict[bool, dict[str, Any]]] = {}
    for row in report["marks"]:
        cells.setdefault((row["language"], row["kind"]), {})[row["listening"]] = row
    print_table(
        ("from", "mark", "idle ns, least", "median", "listening ns, least", "median"),
        [
            (
                language,
                kind,
                *(f"{each[at][value]:.0f}" for at in (False, True) for value in ("ns_min", "ns_median")),
            )
            for (language, kind), each in cells.items()
        ],
        empty="nothing",
    )
    counts = f"{report['counted']:,} of {report['made']:,} requests seen, {report['lost']} lost"
    say(f"{counts}; {'within' if report['within_budget'] else 'NOT within'} the budgets")
