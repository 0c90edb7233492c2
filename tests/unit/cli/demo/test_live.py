# SPDX-License-Identifier: Apache-2.0
"""What the demo says: every change once, and a verdict on what must not have happened."""

from __future__ import annotations

import pytest

from hotstage.cli.demo.live import LiveView, named_kind
from hotstage.cli.demo.run import Live

AGENT = {"cpu_ratio": 0.05, "rss_bytes": 1 << 26, "map_bytes": 1 << 24, "start_to_attached_seconds": 0.2}


def document(**changed):
    return {
        "calls": {"made": 7, "counted": 7, "open": 0, "lost": 0},
        "loader": "libbpf",
        "rung": "S",
        "agent": AGENT,
        "webhooks": {"enqueued": 0, "verified": 0},
        "faults": [],
        "stages": [],
        "windows": [],
        "hard_negatives": [],
        "foreign_processes": 0,
        "unobserved": {"seconds": 0.0, "times": 0, "is_complete": True},
        **changed,
    }


FAULT = {
    "name": "encoder-stall",
    "kind": "stage_latency",
    "detected": True,
    "kind_named": True,
    "entity_named": True,
    "delay_seconds": 2.0,
    "window_closed": True,
    "window_id": "w-1",
}


@pytest.mark.parametrize(
    ("windows", "faults", "verdict"),
    [
        ([], [], "no window opened"),
        ([{"id": "w-9"}], [], "1 windows opened: WRONG"),
        ([{"id": "w-1"}], [FAULT], "no window opened"),
        ([{"id": "w-1"}, {"id": "w-9"}], [FAULT], "1 windows opened: WRONG"),
    ],
)
def test_a_hard_negative_is_judged_by_windows_that_no_fault_explains(capsys, windows, faults, verdict):
    LiveView(45.0).report(document(hard_negatives=["load-ramp"], windows=windows, faults=faults))
    said = capsys.readouterr().out
    assert "load-ramp is a hard negative: no window may open" in said
    assert f"hard negative load-ramp: {verdict}" in said
    assert "no fault began" not in said


def test_other_processes_are_mentioned(capsys):
    LiveView(45.0).report(document(foreign_processes=3))
    said = capsys.readouterr().out
    assert "3 other CUDA processes" in said
    assert "no fault began" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "yes"),
        ({"window_closed": None}, "stays open: the fault lasts to the end"),
        ({"window_closed": None, "detected": False}, "—"),
        (
            {"window_closed": False},
            "not before the run ended: it closes after some seconds without a sign of it",
        ),
        (
            {"window_closed": False, "kind": "gpu_xid"},
            "not before the run ended: it stands until something shows the GPU back",
        ),
    ],
)
def test_a_window_that_did_not_close_says_why(capsys, changed, said):
    LiveView(45.0).report(document(faults=[FAULT | changed]))
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("encoder-stall"))
    assert row.split("\t")[-1] == said


def test_a_kind_is_named_in_words_and_one_of_a_rule_of_ones_own_by_its_name():
    assert named_kind("alive_but_hung") == "alive_but_hung (alive, but nothing comes out)"
    assert named_kind("queue_growth") == "queue_growth"


def test_figures_of_stages_say_what_time_they_are_of(capsys):
    LiveView(45.0).report(document())
    assert "stages over the whole run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("unobserved", "said"),
    [
        ({"seconds": 3.0, "times": 1, "is_complete": True}, "switched off once, for 3 s in all"),
        (
            {"seconds": 9.0, "times": 10, "is_complete": False},
            "switched off at least 10 times, for at least 9 s in all",
        ),
        (None, "is not known"),
    ],
)
def test_a_time_without_probes_is_said_beside_the_calls(capsys, unobserved, said):
    LiveView(45.0).report(document(unobserved=unobserved))
    assert said in capsys.readouterr().out


def test_probes_that_were_on_all_the_time_need_no_word(capsys):
    LiveView(45.0).report(document())
    assert "switched off" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "enforced", "said"),
    [
        ("open", False, "closed → open (dry run)"),
        ("open", True, "closed → open"),
        ("forced_open", True, "closed → forced_open (a person's order: callers heed it, in dry run, too)"),
        ("disabled", False, "closed → disabled (a person's order: callers admit)"),
    ],
)
def test_a_move_says_whether_callers_heed_the_state_it_led_to(capsys, state, enforced, said):
    move = {"from": "closed", "to": state, "at_ns": 1}
    breaker = {"name": "host", "enforced": enforced, "transitions": [move]}
    live = Live(1.0, None, {"calls": {"counted": 0, "lost": 0}}, [], [breaker], [])
    LiveView(45.0).show(live)
    assert said in capsys.readouterr().err.splitlines()[0]
    assert capsys.readouterr().err == ""
