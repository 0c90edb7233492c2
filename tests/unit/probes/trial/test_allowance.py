# SPDX-License-Identifier: Apache-2.0
"""A user whose libraries hang or lie is out of trials at once, and nobody else is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from support.driver_library import build_driver, parse_driver

from hotstage.clock import SystemClock
from hotstage.probes.loader.base import Rung
from hotstage.probes.trial.allowance import ROOT, WINDOW_NS, Allowance
from hotstage.probes.trial.trials import DEADLINE_NS, LibraryTrials

HOSTILE, OTHER = 1000, 1001
MS = 1_000_000
HANGS = '__attribute__((constructor)) static void hang(void) { for (;;) __asm__ volatile(""); }'


def test_one_trial_that_took_its_whole_time_is_all_that_a_user_gets(clock: Any) -> None:
    allowance = Allowance(clock.monotonic_ns)
    assert allowance.is_left(HOSTILE)
    allowance.spend(HOSTILE, DEADLINE_NS, has_failed=True)
    assert not allowance.is_left(HOSTILE)
    assert allowance.is_left(OTHER) and allowance.is_left(None)
    clock.advance(WINDOW_NS / 1e9 + 0.001)
    assert allowance.is_left(HOSTILE)


def test_a_server_with_many_libraries_has_them_all_tried(clock: Any) -> None:
    allowance = Allowance(clock.monotonic_ns)
    for _ in range(13):
        assert allowance.is_left(OTHER)
        allowance.spend(OTHER, 110 * MS, has_failed=False)


def test_root_has_no_limit(clock: Any) -> None:
    allowance = Allowance(clock.monotonic_ns)
    for _ in range(30):
        allowance.spend(ROOT, DEADLINE_NS, has_failed=True)
    assert allowance.is_left(ROOT)


def test_who_has_used_it_up_is_attached_untried_and_others_are_tried(tmp_path: Path) -> None:
    parsed, points = parse_driver(build_driver(tmp_path, more=HANGS))
    trials = LibraryTrials(
        Rung.SESSION, SystemClock(), tmp_path, user_of=lambda pid: pid, has_room=lambda user: user != 7
    )
    trials.started()
    try:
        reports = [trials.try_out(parsed, points, user) for user in (HOSTILE, HOSTILE, OTHER, 7)]
    finally:
        os.close(parsed.library.fd)
    assert [left for left, _ in reports] == [points] * 4
    found = [report.reason for _, report in reports if report is not None]
    late, spent = "it did not answer in time", "earlier trials of its user's libraries took too long"
    assert found == [late, spent, late, "its user has as many libraries as one may have"]
    assert reports[1][1] is not None and reports[1][1].seconds < 0.05
