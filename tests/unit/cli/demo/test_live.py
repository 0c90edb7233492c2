# SPDX-License-Identifier: Apache-2.0
"""What the demo says: every change once, and a verdict on what must not have happened."""

from __future__ import annotations

import pytest

from hotstage.cli.demo.live import LiveView

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
        **changed,
    }


FAULT = {
    "name": "encoder-stall",
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
    assert f"hard negative load-ramp: {verdict}" in capsys.readouterr().out


def test_other_processes_are_mentioned(capsys):
    LiveView(45.0).report(document(foreign_processes=3))
    said = capsys.readouterr().out
    assert "3 other CUDA processes" in said
    assert "no fault began" in said
