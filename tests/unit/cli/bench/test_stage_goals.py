# SPDX-License-Identifier: Apache-2.0
"""When `bench stages` is within its goals: everything asked for was measured and is good enough."""

from __future__ import annotations

import pytest

from hotstage.cli.bench.stage_sources import SOURCES
from hotstage.cli.bench.stages import GOALS, NO_NVTX, _print, _progress, is_within

GOOD = {"marks": 1.0, "nvtx": 0.99, "rules": 0.95, "fingerprints": 0.93, "eager": 0.7}
SHARES = {"marks": 0.001, "nvtx": 0.001, "rules": 0.05, "fingerprints": 0.05, "eager": 0.3}


def test_there_is_a_goal_for_each_source_and_a_source_for_each_goal():
    assert [source.mode for source in SOURCES] == list(GOALS)


def test_all_that_was_asked_for_and_is_good_enough_is_within():
    assert is_within(tuple(GOALS), GOOD, SHARES, [0.01])
    assert is_within(("rules",), {"rules": 0.9}, {"rules": 0.1}, [])


@pytest.mark.parametrize(
    ("accuracy", "shares", "errors"),
    [
        ({**GOOD, "fingerprints": 0.89}, SHARES, [0.01]),
        ({mode: value for mode, value in GOOD.items() if mode != "nvtx"}, SHARES, [0.01]),
        (GOOD, {**SHARES, "marks": 0.03}, [0.01]),
        (GOOD, {**SHARES, "marks": None}, [0.01]),
        (GOOD, SHARES, [0.01, 0.06]),
        (GOOD, SHARES, []),
    ],
    ids=["inaccurate", "not measured", "unattributed", "share unknown", "p95 off", "no p95"],
)
def test_what_is_missing_or_too_bad_is_not(accuracy, shares, errors):
    assert not is_within(tuple(GOALS), accuracy, shares, errors)


def report(**changed):
    host = {"rung": "S", "kernel": "6.6", "cpu": "a CPU"}
    source = {
        "made": 1000,
        "right": 995,
        "shared": 0,
        "wrong_ratio": 0.0,
        "stages": {"llm_decode": {"made": 1000, "right": 995}},
    }
    return {
        "host": host,
        "seed": 1,
        "accuracy": {"marks": 0.995},
        "unattributed_ratio": {"marks": 0.001},
        "sources": {"marks": source},
        "not_measured": {},
        "lost": 0,
        "within_goals": True,
        **changed,
    }


def test_what_was_not_measured_is_said_with_the_remedy_and_is_no_missed_goal(capsys):
    _print(report(not_measured={"nvtx": NO_NVTX}))
    said = capsys.readouterr().out
    assert f"nvtx: not measured, {NO_NVTX}" in said
    assert "pip install nvtx" in said
    assert said.endswith("within the goals; not measured: nvtx\n")
    assert "NOT" not in said


def test_shares_are_in_percent(capsys):
    _print(report(within_goals=False))
    said = capsys.readouterr().out
    assert "marks\t99.5%\t98.0%\t0.1%\t0.0%\t1000" in said
    assert "llm_decode\t99.5%" in said
    assert said.endswith("NOT within the goals\n")


def test_progress_is_told_in_a_pipe_too(capsys):
    _progress("marks: 20 s of traffic")
    assert capsys.readouterr().err == "marks: 20 s of traffic\n"
