# SPDX-License-Identifier: Apache-2.0
"""The verdict: exit codes, counts, the closing line; and what strangers wrote is made harmless."""

from __future__ import annotations

import json

import pytest

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.report import clean, exit_code, report, summary
from hotstage.cli.doctor.run import Check, Outcome


def finding(status: Status, *, is_permission: bool = False) -> Finding:
    return Finding(Area.KERNEL, "x", status, "", is_permission=is_permission)


OK, ABSENT, WARN, UNKNOWN, FAIL = map(
    finding, (Status.OK, Status.ABSENT, Status.WARN, Status.UNKNOWN, Status.FAIL)
)
DENIED = finding(Status.FAIL, is_permission=True)


@pytest.mark.parametrize(
    ("findings", "strict", "code"),
    [
        ([OK, ABSENT], True, 0),
        ([OK, WARN, UNKNOWN], False, 0),
        ([OK, WARN], True, 3),
        ([OK, UNKNOWN], True, 3),
        ([WARN, FAIL], True, 4),
        ([FAIL], False, 4),
        ([FAIL, DENIED], False, 5),
    ],
)
def test_exit_codes(findings, strict, code):
    assert exit_code(findings, strict=strict) == code


def outcomes(*findings: Finding) -> list[Outcome]:
    return [Outcome(Check(Area.KERNEL, "x", "/proc", lambda host: []), findings, 0.1)]


@pytest.mark.parametrize(
    ("findings", "status"),
    [([OK, ABSENT], "ok"), ([OK, WARN], "degraded"), ([UNKNOWN], "degraded"), ([WARN, FAIL], "failed")],
)
def test_the_status_is_the_worst(findings, status):
    assert report(outcomes(*findings), 0, 1.0)["status"] == status


def test_every_finding_is_kept_with_what_was_looked_at():
    body = report(outcomes(OK, WARN, WARN), 3, 0.81234)
    assert body["counts"] == {"ok": 1, "absent": 0, "warn": 2, "fail": 0, "unknown": 0}
    assert (body["exit_code"], body["seconds"]) == (3, 0.812)
    assert body["findings"][0] == {
        "area": "kernel", "name": "x", "status": "ok", "detail": "", "remedy": None, "is_permission": False,
        "looked_at": "/proc", "features": [], "data": {},
    }  # fmt: skip


def test_the_closing_line_counts_what_is_in_the_way():
    assert summary([OK, ABSENT], 0.84) == "hotstage runs here (1 ok, 1 absent; 0.8 s)"
    assert summary([OK, WARN], 1.0).startswith("hotstage runs here; less than fine: 1 (")
    assert summary([WARN, UNKNOWN], 1.0).startswith(
        "hotstage runs here as far as that was checked; less than fine or not known: 2; not checked: x ("
    )
    assert summary([OK, FAIL], 1.0).startswith("hotstage cannot run here, or not in full; in the way: 1 (")


def test_nothing_of_a_stranger_moves_a_cursor_or_breaks_a_line():
    hostile = "a\x1b[2Jb\nc\r\x07\u202ed\udc80"
    assert clean(hostile) == "a?[2Jb?c???d?"
    assert len(clean("x" * 10_000)) == 2000
    bad = Finding(
        Area.KERNEL, hostile, Status.OK, hostile, hostile, data={hostile: [hostile, {"k": hostile}]}
    )
    text = json.dumps(report(outcomes(bad), 0, 0.0), ensure_ascii=False)
    assert "\\u001b" not in text
    assert text.isprintable()
