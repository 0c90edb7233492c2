# SPDX-License-Identifier: Apache-2.0
"""Estimate and its basis; figures by hand."""

from __future__ import annotations

import pytest

from hotstage.frame.fragmentation import DeviceMemory, FailedAllocations, best, is_false_oom_risk, of_ledger
from hotstage.probes.memory_sample import Basis, Estimate

GIB = 1 << 30
DEVICE = DeviceMemory(total=80 * GIB, used=60 * GIB)


def test_the_rest_of_pages_serves_no_large_allocation():
    found = of_ledger(live=35 * GIB, pages=40 * GIB, known=50 * GIB, device=DEVICE)
    assert found == Estimate(Basis.LEDGER, 5 / 25, 25 * GIB, 20 * GIB)


@pytest.mark.parametrize(
    ("live", "pages", "known"),
    [(0, 0, 50 * GIB), (10 * GIB, 12 * GIB, 29 * GIB)],
    ids=["no pointers", "less than half of what is used"],
)
def test_a_ledger_that_knows_too_little_says_nothing(live, pages, known):
    assert of_ledger(live, pages, known, DEVICE) is None


def test_a_failure_with_room_is_a_bound_for_a_minute():
    failures = FailedAllocations()
    failures.add(10**9, 30 * GIB, DEVICE)  # more than was free
    assert failures.inferred(2 * 10**9, None) is None
    failures.add(10**9, 15 * GIB, DEVICE)
    failures.add(10**9, 5 * GIB, DEVICE)
    found = failures.inferred(2 * 10**9, None)
    assert (found.basis, found.ratio, found.largest_free_bytes) == (Basis.INFERRED, 0.75, 5 * GIB)
    assert failures.count(2 * 10**9) == 2
    assert failures.inferred(62 * 10**9, None) is None


def test_a_failure_on_a_full_device_says_nothing():
    failures = FailedAllocations()
    failures.add(1, GIB, DeviceMemory(80 * GIB, 79 * GIB))
    assert failures.count(2) == 0


def test_the_best_basis_wins_and_without_one_nothing_is_said():
    inferred = Estimate(Basis.INFERRED, 0.9, 9 * GIB)
    ledger = Estimate(Basis.LEDGER, 0.2, 20 * GIB)
    torch = [Estimate(Basis.TORCH, 0.3, 4 * GIB), Estimate(Basis.TORCH, 0.1, 5 * GIB)]
    assert best([inferred, None, ledger], DEVICE) is ledger
    assert best([inferred, ledger, *torch], DEVICE) is torch[1]
    unknown = best([None], DEVICE)
    assert (unknown.basis, unknown.ratio) == (Basis.UNKNOWN, None)


def test_no_ratio_while_less_than_two_hundredths_are_free():
    found = best([Estimate(Basis.TORCH, 0.5, GIB)], DEVICE)
    assert (found.basis, found.ratio) == (Basis.TORCH, None)
    assert found.why


def test_what_failed_before_says_nothing_of_a_device_that_is_full_now():
    failures = FailedAllocations()
    failures.add(10**9, 5 * GIB, DEVICE)
    assert best([failures.inferred(2 * 10**9, DEVICE)], DEVICE).ratio == 0.75
    full = DeviceMemory(80 * GIB, 79 * GIB)
    found = best([failures.inferred(2 * 10**9, full)], full)
    assert (found.basis, found.ratio) == (Basis.INFERRED, None)


@pytest.mark.parametrize(
    ("basis", "ratio", "risk"),
    [
        (Basis.TORCH, 0.41, True),
        (Basis.LEDGER, 0.4, False),
        (Basis.POOL, 0.9, None),
        (Basis.INFERRED, 0.9, True),
        (Basis.INFERRED, 0.1, None),  # at least so much
        (Basis.UNKNOWN, None, None),
    ],
)
def test_free_memory_that_is_cut_up_is_a_risk_of_false_oom(basis, ratio, risk):
    assert is_false_oom_risk(Estimate(basis, ratio)) is risk
