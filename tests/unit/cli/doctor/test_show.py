# SPDX-License-Identifier: Apache-2.0
"""Plain lines where nobody looks, a grouped table on a terminal."""

from __future__ import annotations

import sys

import pytest

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.show import LEGEND, progress, recall, show
from hotstage.cli.doctor.table import CHECKS

FINDINGS = [
    Finding(Area.KERNEL, "BTF", Status.OK, "there", features=("rung S",)),
    Finding(Area.GPU, "NVML", Status.WARN, "not found", "install it", features=("device values",)),
]


def test_plain_lines_are_tab_separated(capsys):
    show(FINDINGS)
    assert capsys.readouterr().out.splitlines() == [
        "ok\tkernel\tBTF\tthere",
        "warn\tgpu\tNVML\tnot found\tremedy: install it",
    ]


def test_at_the_end_stand_what_the_marks_mean_and_what_is_to_mend_the_worst_first(capsys, monkeypatch):
    recall(FINDINGS)
    assert capsys.readouterr().out == "", "plain lines are one a finding"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    recall([*FINDINGS, Finding(Area.KERNEL, "bpf(2)", Status.FAIL, "refused", "run as root")])
    assert capsys.readouterr().out.splitlines() == [
        LEGEND,
        "FAIL  kernel: bpf(2): refused",
        "      → run as root",
        "warn  gpu: NVML: not found",
        "      → install it",
    ]


def test_a_terminal_gets_groups_features_and_remedies(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    show(FINDINGS)
    shown = capsys.readouterr().out
    assert "concerns: device values" in shown
    assert "→ install it" in shown
    assert "concerns: rung S" not in shown
    assert shown.index("kernel") < shown.index("gpu")


@pytest.mark.parametrize(("is_tty", "is_wanted"), [(False, True), (True, False)])
def test_progress_is_for_people_who_look(capsys, monkeypatch, is_tty, is_wanted):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_tty)
    with progress(2, is_wanted=is_wanted) as tell:
        tell(CHECKS[0])
    assert capsys.readouterr().err == ""
