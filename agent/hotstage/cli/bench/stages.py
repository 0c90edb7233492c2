# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench stages`: how many launches get the right stage, by what the server lets be known of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

import click

from hotstage.cli.bench.confusion import Confusion, compare, counted_launches, made_launches
from hotstage.cli.bench.stage_run import Durations, StageRun, true_durations
from hotstage.cli.bench.stage_sources import SOURCES, measure_source
from hotstage.cli.bench.targets import host_facts
from hotstage.cli.demo.report import QUANTILE_MIN_SAMPLES, nearest_rank
from hotstage.cli.durations import Duration
from hotstage.cli.terminal import print_json, print_table, say
from hotstage.clock import Clock, SystemClock
from hotstage.errors import PreflightError
from hotstage.probes.loader.base import Rung

GOALS = {"marks": 0.98, "nvtx": 0.98, "rules": 0.90, "fingerprints": 0.90, "eager": 0.60}
"""Least accuracy by source."""
WRONG_GOAL = 0.01
"""Largest share of wrong stages among those told by the work of bursts: what is not clear has no stage."""
UNATTRIBUTED_GOAL = 0.02
"""With marks."""
P95_GOAL = 0.05
"""Largest relative error of a p95, by stage and modality."""
REPORTING_SEED = 20261130
"""No default, rule or fingerprint was tuned on it; the demo's is 1."""
METHOD = (
    "for each source a fresh simulated host under real probes: two server processes with worker threads and "
    "streams for each stage; accuracy = share of launch-class calls counted for the stage that made them, "
    "compared by process, function and device, where each stage's launches are a cell of their own; p95 = "
    "nearest rank over the same requests, from per-request records on both sides, with marks, "
    f"n ≥ {QUANTILE_MIN_SAMPLES}; rules are for the names of threads; functions are learned from a marked "
    "server of another seed, and applied to one whose threads are all called alike and do any stage; eager: "
    "one thread prefills and decodes without graphs, learned meanwhile; accuracy of these two stages, where "
    "the first 32 launches of each step have none"
)
NO_NVTX = "PyPI's nvtx is not installed here: `pip install nvtx` into hotstage's environment"
_LOST_CALLS = ("lost_call_keys", "lost_threads", "lost_frames")
_FAILED, _DEGRADED = 1, 3


@click.command()
@click.option("--seconds", type=Duration(5, 600), default=20.0, show_default=True, help="Of traffic, each.")
@click.option("--seed", type=click.IntRange(min=0), default=REPORTING_SEED, show_default=True)
@click.option(
    "--source",
    "sources",
    type=click.Choice(list(GOALS)),
    multiple=True,
    help="Of the stages, repeatable; default: all five.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def stages(seconds: float, seed: int, sources: tuple[str, ...], as_json: bool) -> int:
    """Compare the stages of a simulated server's launches with the truth: marks, NVTX, rules,
    fingerprints, and prefill and decode without graphs.

    Exit code 3 when a goal is missed, 1 when calls were lost and the run does not count.
    """
    report = stages_report(seconds, seed, SystemClock(), sources or tuple(GOALS))
    if as_json:
        print_json(report)
    else:
        _print(report)
    if report["lost"]:
        return _FAILED
    return 0 if report["within_goals"] else _DEGRADED


def stages_report(
    seconds: float, seed: int, clock: Clock, sources: Collection[str] = tuple(GOALS)
) -> dict[str, Any]:
    """The report of schemas/bench.json. A source that this host does not have is left out:
    `not_measured` says why and what helps.

    Raises PreflightError when that leaves none, HotstageError when probes cannot be attached or a simulated
    host does not start.
    """
    confusions: dict[str, Confusion] = {}
    narrowed: dict[str, float | None] = {}
    not_measured: dict[str, str] = {}
    lost = 0
    rung, p95 = "", dict[str, dict[str, Any]]()
    for source in SOURCES:
        if source.mode not in sources:
            continue
        if source.mode == "nvtx" and find_spec("nvtx") is None:
            not_measured["nvtx"] = NO_NVTX
            _progress(f"nvtx: {NO_NVTX}")
            continue
        measured = measure_source(source, seed=seed, seconds=seconds, clock=clock, say=_progress)
        run, rung = measured.run, measured.rung
        confusions[source.mode] = judge(run)
        if source.stages is not None:
            narrowed[source.mode] = confusions[source.mode].accuracy_of(source.stages)
        lost += sum(run.losses.get(name, 0) for name in _LOST_CALLS)
        if source.mode == "marks":
            p95 = p95_errors(run.durations, true_durations(run.truth))
    if not confusions:
        raise PreflightError("no source of stages was measured", remedy="; ".join(not_measured.values()))
    errors = [row["error_ratio"] for row in p95.values() if row["error_ratio"] is not None]
    measurable = [mode for mode in sources if mode not in not_measured]
    whole = {mode: each.accuracy for mode, each in confusions.items()} | narrowed
    accuracy = {mode: share for mode, share in whole.items() if share is not None}
    wrong = confusions["eager"].wrong_ratio if "eager" in confusions else None
    unattributed = {mode: each.unattributed_ratio for mode, each in confusions.items()}
    return {
        "bench": "stages",
        "host": host_facts("libbpf", Rung(rung)),
        "method": METHOD,
        "seed": seed,
        "seconds": seconds,
        "accuracy": accuracy,
        "unattributed_ratio": unattributed,
        **({"p95_error_ratio_max": max(errors)} if errors else {}),
        "lost": lost,
        "sources": {mode: _source(each) for mode, each in confusions.items()},
        "p95": p95,
        "goals": {
            **GOALS,
            "unattributed_ratio": UNATTRIBUTED_GOAL,
            "p95_error_ratio_max": P95_GOAL,
            "wrong_ratio": WRONG_GOAL,
        },
        "not_measured": not_measured,
        "within_goals": is_within(measurable, accuracy, unattributed, errors) and (wrong or 0) <= WRONG_GOAL,
    }


def judge(run: StageRun) -> Confusion:
    """Counted against made, over the processes of the run."""
    return compare(made_launches(run.truth["launches"]), counted_launches(run.calls, run.pids))


def p95_errors(measured: Durations, true: Durations) -> dict[str, dict[str, Any]]:
    """Per `stage modality`: both p95s in seconds and their relative difference; None below n = 20."""
    found = {}
    for stage, modality in sorted({*measured, *true}):
        ours, theirs = (sorted(each.get((stage, modality), ())) for each in (measured, true))
        p95, true_p95 = nearest_rank(ours, 0.95), nearest_rank(theirs, 0.95)
        found[f"{stage} {modality}"] = {
            "requests": len(ours),
            "true_requests": len(theirs),
            "p95_seconds": p95,
            "true_p95_seconds": true_p95,
            "error_ratio": abs(p95 / true_p95 - 1) if p95 and true_p95 else None,
        }
    return found


def _source(confusion: Confusion) -> dict[str, Any]:
    return {
        "made": confusion.made,
        "right": confusion.right,
        "shared": confusion.shared,
        "wrong": confusion.wrong,
        "wrong_ratio": confusion.wrong_ratio,
        "stages": {
            score.stage or "none": {"made": score.made, "right": score.right} for score in confusion.stages
        },
    }


def is_within(
    sources: Collection[str],
    accuracy: Mapping[str, float],
    unattributed: Mapping[str, float | None],
    errors: list[float],
) -> bool:
    """`sources`: those that this host has; one of them without a figure is not within its goal."""
    if any(accuracy.get(mode, 0.0) < GOALS[mode] for mode in sources):
        return False
    if "marks" not in sources:
        return True
    share = unattributed["marks"]
    return share is not None and share <= UNATTRIBUTED_GOAL and bool(errors) and max(errors) <= P95_GOAL


def _progress(line: str) -> None:
    say(line, err=True)


def _print(report: dict[str, Any]) -> None:
    host = report["host"]
    say(f"rung {host['rung']}, kernel {host['kernel']}, {host['cpu']}, seed {report['seed']}")
    rows = [
        (
            mode,
            _percent(report["accuracy"].get(mode)),
            _percent(goal),
            _percent(report["unattributed_ratio"].get(mode)),
            _percent(report["sources"][mode].get("wrong_ratio")),
            report["sources"].get(mode, {}).get("made"),
        )
        for mode, goal in GOALS.items()
        if mode in report["sources"]
    ]
    print_table(
        ("source", "accuracy", "goal", "unattributed", "told wrong", "launches"), rows, empty="nothing"
    )
    for mode, why in report["not_measured"].items():
        say(f"{mode}: not measured, {why}")
    names = sorted({name for source in report["sources"].values() for name in source["stages"]})
    print_table(
        ("stage", *report["sources"]),
        [
            (name, *(_share(source["stages"].get(name)) for source in report["sources"].values()))
            for name in names
        ],
        empty="nothing",
    )
    worst = report.get("p95_error_ratio_max")
    error = "unknown" if worst is None else f"{worst:.2%}"
    say(f"largest error of a p95 with marks: {error}; {report['lost']} calls lost")
    say(_verdict(report))


def _verdict(report: Mapping[str, Any]) -> str:
    verdict = f"{'within' if report['within_goals'] else 'NOT within'} the goals"
    left_out = ", ".join(report["not_measured"])
    return f"{verdict}; not measured: {left_out}" if left_out else verdict


def _share(score: Mapping[str, int] | None) -> str | None:
    return _percent(score["right"] / score["made"] if score and score["made"] else None)


def _percent(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.1%}"
