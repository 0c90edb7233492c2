# SPDX-License-Identifier: Apache-2.0
"""When `bench stages` is within its goals: everything asked for was measured and is good enough."""

from __future__ import annotations

import pytest

from hotstage.cli.bench.stage_sources import SOURCES
from hotstage.cli.bench.stages import GOALS, is_within

GOOD = {"marks": 1.0, "nvtx": 0.99, "rules": 0.95, "fingerprints": 0.93}
SHARES = {"marks": 0.001, "nvtx": 0.001, "rules": 0.05, "fingerprints": 0.05}


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
