# SPDX-License-Identifier: Apache-2.0
"""What a run ends with: failed before incomplete before passed, and nothing unseen counts as passed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_checks.report import FAILED, INCOMPLETE, PASSED, Outcome, Report, Section


def section(*holds: bool | None) -> Section:
    made = Section("counts", "?")
    for number, each in enumerate(holds):
        if each is None:
            made.not_run(f"part {number}", "no GPU")
        else:
            made.check(f"check {number}", each, "seen")
    return made


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ([section(True, True)], PASSED),
        ([section(True), section(False)], FAILED),
        ([section(True, None)], INCOMPLETE),
        ([section(None, False)], FAILED),
        ([section(True), section()], INCOMPLETE),
    ],
)
def test_the_exit_code_says_the_worst(sections: list[Section], code: int) -> None:
    assert Report({}, False, tuple(sections)).exit_code() == code


def test_a_stage_of_which_nothing_ran_has_not_passed() -> None:
    assert section(None).outcome is Outcome.NOT_RUN
    assert section().outcome is Outcome.NOT_RUN
    assert section(True, None).outcome is Outcome.PASSED


def test_an_unknown_figure_is_null_in_the_report_and_unknown_in_the_summary(tmp_path: Path) -> None:
    stage = section(True)
    stage.figure("power", None, "W", "NVML does not say")
    stage.figure("ratio", 0.98765, "", "with / without")
    Report({"gpu": "H200"}, False, (stage,)).write(tmp_path)
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["stages"][0]["figures"]["power"]["value"] is None
    summary = (tmp_path / "summary.txt").read_text()
    assert "power = unknown" in summary
    assert "ratio = 0.9877" in summary


def test_the_summary_names_what_failed_and_what_did_not_run() -> None:
    summary = Report({}, True, (section(False, None),)).summary()
    assert "FAILED: check 0: seen" in summary
    assert "not run: part 1: no GPU" in summary
    assert "DRY RUN" in summary
