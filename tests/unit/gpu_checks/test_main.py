# SPDX-License-Identifier: Apache-2.0
"""How a stage ends: by its deadline, by an error, or never begun; what it had found stays."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gpu_checks.__main__ import _past_deadline, run
from gpu_checks.report import Outcome, Section
from gpu_checks.stages import Stage
from gpu_checks.target import TargetError

NOWHERE: Any = None


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _past_deadline)
    yield
    signal.signal(signal.SIGALRM, before)


def ended(work: Any, seconds: float = 10.0, left: float = 100.0) -> Section:
    section = Section("counts", "?")
    run(Stage("counts", "?", seconds, work), section, NOWHERE, left)
    return section


def test_a_stage_that_hangs_is_ended_and_keeps_what_it_found() -> None:
    def work(at: Any, section: Section) -> None:
        section.check("the first half", True)
        threading.Event().wait(30)

    section = ended(work, seconds=0.1)
    assert [check.outcome for check in section.checks] == [Outcome.PASSED, Outcome.FAILED]
    assert "time is up" in section.checks[1].detail
    assert section.seconds is not None
    assert section.seconds < 5


@pytest.mark.parametrize("error", [TargetError("it ended"), OSError("no such file"), KeyError("call")])
def test_an_error_is_a_finding(error: Exception) -> None:
    def work(at: Any, section: Section) -> None:
        raise error

    (check,) = ended(work).checks
    assert check.outcome is Outcome.FAILED
    assert type(error).__name__ in check.detail


def test_a_stage_without_time_is_not_begun() -> None:
    begun = []
    section = ended(lambda at, section: begun.append(at), left=1.0)
    assert not begun
    assert section.outcome is Outcome.NOT_RUN
    assert section.seconds is None
