# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench page`: from the kernel's verdict on an allocation to the page that callers read and the
webhook that arrives, as an outsider sees it; and what a look at the page costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from hotstage.cli.bench.conflict_run import ConflictRun, run_conflicts
from hotstage.cli.bench.targets import host_facts
from hotstage.cli.terminal import print_json, print_table, say
from hotstage.cli.up import require_root
from hotstage.probes.loader.base import Rung

CONFLICTS_MIN = 30
BUDGETS = {
    "verdict_to_window_ms_p99": 1000.0,
    "decision_to_visible_ms_p99": 5.0,
    "webhook_ms_p99": 250.0,
}
METHOD = (
    "the simulated host's token-conflict, a volley a second, under agent and notifier as they are installed, "
    "with windows and cool-downs of a fraction of a second, so that each volley opens the breaker anew; "
    "verdict = the kernel's time of the allocation; decision = the start of the tick that read it, reading "
    "and judging included; page = first sight of a reader that looks every 0.1 ms; webhook = its arrival at "
    "a receiver on loopback, counted from the decision; quantiles are nearest rank"
)
_STEPS = {
    "verdict_to_window": "verdict in the kernel → window",
    "decision_to_visible": "decision → page",
    "webhook": "decision → webhook received",
}
_FAILED, _DEGRADED = 1, 3


@click.command()
@click.option("--conflicts", type=click.IntRange(CONFLICTS_MIN, 1000), default=40, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def page(conflicts: int, seed: int, as_json: bool) -> int:
    """How soon callers know of a conflict: verdict in the kernel, window, page, webhook.

    Takes a second a conflict, and 15 more. Exit code 3 when a budget is missed, 1 when too few were seen.
    """
    require_root()
    report = page_report(run_conflicts(conflicts, seed))
    if as_json:
        print_json(report)
    else:
        _print(report)
    if report["made"] < CONFLICTS_MIN or report["lost"]:
        return _FAILED
    return 0 if report["within_budget"] else _DEGRADED


def page_report(run: ConflictRun) -> dict[str, Any]:
    """The report of schemas/bench.json. A step that was not seen of some opening counts as lost."""
    steps = {
        "verdict_to_window": [each.window_ms for each in run.openings],
        "decision_to_visible": [each.page_ms for each in run.openings],
        "webhook": [each.webhook_ms for each in run.openings],
    }
    known = {name: [value for value in values if value is not None] for name, values in steps.items()}
    figures = {
        f"{name}_ms_p{share}": nearest_rank(values, share / 100)
        for name, values in known.items()
        for share in (50, 99)
    }
    return {
        "bench": "page",
        "host": host_facts(run.loader, Rung(run.rung)),
        "method": METHOD,
        **figures,
        "own_decision_to_page_ms_p99": run.own_page_ms,
        "read_ns_python": run.read_ns,
        "load_average": run.load_average,
        "made": len(run.openings),
        "lost": sum(not each.is_whole for each in run.openings),
        "budgets": BUDGETS,
        "within_budget": all((figures[name] or math.inf) <= limit for name, limit in BUDGETS.items()),
    }


def nearest_rank(values: Sequence[float], quantile: float) -> float | None:
    """The smallest value with at least `quantile` of all at or below it; None for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)] if ordered else None


def _print(report: dict[str, Any]) -> None:
    host = report["host"]
    say(f"rung {host['rung']} through {host['loader']}, kernel {host['kernel']}, {host['cpu']}")
    print_table(
        ("step", "p50 ms", "p99 ms", "budget p99 ms"),
        [
            (
                words,
                *(report[f"{name}_ms_p{share}"] for share in (50, 99)),
                BUDGETS[f"{name}_ms_p99"],
            )
            for name, words in _STEPS.items()
        ],
        empty="nothing",
    )
    own = report["own_decision_to_page_ms_p99"]
    say(
        "from decision to page by the agent's own clock, p99: "
        f"{'unknown' if own is None else f'{own:.3f} ms'}; "
        f"load average {report['load_average']:.1f} on {host['cpus']} CPUs"
    )
    say(
        f"{report['made']} conflicts opened the breaker, {report['lost']} were not seen whole; a look at the "
        f"page costs {report['read_ns_python']:.0f} ns from Python; "
        f"{_verdict(report)}"
    )


def _verdict(report: dict[str, Any]) -> str:
    """`within the budgets`, or which steps are not."""
    missed = [
        f"{words} ({'not seen' if figure is None else f'p99 {figure:.3g} ms, budget {limit:.0f} ms'})"
        for name, words in _STEPS.items()
        if ((figure := report[f"{name}_ms_p99"]) or math.inf) > (limit := BUDGETS[f"{name}_ms_p99"])
    ]
    return f"NOT within the budget: {'; '.join(missed)}" if missed else "within the budgets"
