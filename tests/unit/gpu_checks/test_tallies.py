# SPDX-License-Identifier: Apache-2.0
"""Counts of three kinds side by side: what agrees, what does not, and what only CUPTI missed."""

from __future__ import annotations

from gpu_checks.tallies import by_call, read_cupti, rows


def test_variants_are_one_call_and_unknown_symbols_are_left_out() -> None:
    assert by_call({"cuLaunchKernel": 3, "cuLaunchKernel_ptsz": 2, "cuInit": 1}) == {"cuLaunchKernel": 5}
    assert by_call({"cuMemcpyHtoD_v2_ptds": 4}) == {"cuMemcpyHtoD_v2": 4}


def test_a_lost_call_does_not_agree_with_what_was_made() -> None:
    (row,) = rows({"cuLaunchKernel": 6}, {"cuLaunchKernel": 7}, {"cuLaunchKernel": 7})
    assert not row["agrees"]
    assert row["note"] == "counted 6, made 7"


def test_a_call_that_only_cupti_misses_agrees_and_is_noted() -> None:
    (row,) = rows({"cuMemFree_v2": 7}, {"cuMemFree_v2": 7}, {})
    assert row["agrees"]
    assert row["cupti"] == 0
    assert "CUPTI reports 0" in row["note"]


def test_without_a_tally_cupti_is_the_truth() -> None:
    (row,) = rows({"cuGraphLaunch": 5}, None, {"cuGraphLaunch": 4})
    assert not row["agrees"]
    assert row["note"] == "counted 5, CUPTI saw 4"
    assert row["made"] is None


def test_the_file_of_the_injected_library_is_read() -> None:
    found = read_cupti("#status 0\n#beyond 2\ncuLaunchKernel 12\ncuMemAlloc_v2 3\n")
    assert (found.status, found.beyond) == (0, 2)
    assert found.by_name == {"cuLaunchKernel": 12, "cuMemAlloc_v2": 3}


def test_a_file_that_is_cut_short_says_that_cupti_did_not_work() -> None:
    assert read_cupti("").status == -1
