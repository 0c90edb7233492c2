# SPDX-License-Identifier: Apache-2.0
"""What an outsider saw of each opening becomes quantiles; what was not seen is lost, never left out."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from hotstage.cli.bench.conflict_run import ConflictRun, Opening, _opening
from hotstage.cli.bench.page import _verdict, nearest_rank, page_report

SCHEMA = json.loads((Path(__file__).parents[3] / "contracts/schemas/bench.json").read_text(encoding="utf-8"))
MS = 1_000_000
AT = 1_796_000_000_000_000_000


def window(opened_ns, since_ns, kind="token_conflict"):
    return {"kind": kind, "opened_at_ns": opened_ns, "evidence": [{"since_ns": since_ns}]}


def test_each_step_is_the_first_sign_of_it_after_the_decision():
    windows = [window(AT, AT - 3 * MS), window(AT - 900 * MS, AT - 950 * MS), window(AT, AT - 9 * MS, "xid")]
    found = _opening(AT, windows, [AT - MS, AT + 2 * MS, AT + 900 * MS], [AT + 40 * MS])
    assert found == Opening(3.0, 2.0, 40.0)


def test_what_was_not_seen_is_none():
    assert _opening(AT, [], [AT - MS], [AT + 1001 * MS]) == Opening(None, None, None)


@pytest.mark.parametrize(
    ("webhook", "is_within", "lost"), [(40.0, True, 0), (251.0, False, 0), (None, True, 1)]
)
def test_a_report_tells_quantiles_budgets_and_losses(webhook, is_within, lost):
    openings = (*[Opening(3.0, 2.0, 40.0)] * 30, Opening(4.0, 1.0, webhook))
    report = page_report(ConflictRun(openings, 900.0, 0.2, 1.0, "libbpf", "S"))
    jsonschema.validate(report, SCHEMA)
    assert (report["made"], report["lost"], report["within_budget"]) == (31, lost, is_within)
    assert (report["verdict_to_window_ms_p50"], report["verdict_to_window_ms_p99"]) == (3.0, 4.0)
    assert report["decision_to_visible_ms_p99"] == 2.0
    missed = "NOT within the budget: decision → webhook received (p99 251 ms, budget 250 ms)"
    assert _verdict(report) == ("within the budgets" if is_within else missed)


def test_nothing_seen_is_no_figure_and_within_no_budget():
    report = page_report(ConflictRun((), 900.0, 0.2, 1.0, "libbpf", "S"))
    assert report["webhook_ms_p99"] is None and not report["within_budget"]
    assert nearest_rank([5.0, 1.0], 0.5) == 1.0
