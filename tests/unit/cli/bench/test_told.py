# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks say to a person: figures, and beside them what they are of."""

from __future__ import annotations

import importlib

from click.testing import CliRunner

from hotstage.cli.bench.counting import counting
from hotstage.cli.bench.overhead import _print
from hotstage.probes.restraint.costs import Costs

COUNTED = {"exact": True, "made": 2000, "counted": 2000, "lost": 0, "host": {"rung": "S"}}


def test_counting_is_told_in_three_lines(monkeypatch):
    epoch = {"made": 70, "counted": 70, "lost": 0}
    churn = {"short_processes": 200, "epochs": [epoch, epoch], "unobserved": 9}
    report = {**COUNTED, "calls_per_second": 300_000.0, "agent_cpu_ratio": 0.02, "churn": churn}
    module = importlib.import_module("hotstage.cli.bench.counting")
    monkeypatch.setattr(module, "counting_report", lambda *_: report)
    assert CliRunner().invoke(counting, []).output.splitlines() == [
        "at full speed, rung S: 2,000 of 2,000 calls counted, 0 lost",
        "  300,000 calls/s; reading them took 2.0% of one core",
        "with 200 short processes: 70 of 70 and 70 of 70 calls counted before and after a restart, 0 lost; "
        "9 made during it, counted in neither",
    ]


def test_every_variant_of_overhead_is_explained_under_the_table(capsys):
    row = {"name": "launch", "ns_min": 100.0, "ns_median": 110.0, "ratio": 1.1, "added_ns": None}
    _print(
        {
            **COUNTED,
            "host": {"rung": "S", "kernel": "6.18", "cpu": "x"},
            "variants": [row],
            "placement": {"emulated": 9, "symbols": 9, "links": 1, "detach_seconds": 0.1},
            "switches": [],
            "governor_costs": Costs("not measured").as_json(),
            "not_measured": {},
            "within_budget": True,
        }
    )
    said = capsys.readouterr().out.splitlines()
    assert "  launch: hotstage on a launch of a thread with marks" in said
