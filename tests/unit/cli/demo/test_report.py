# SPDX-License-Identifier: Apache-2.0
"""The demo's report tells what was measured from what is true, and never rounds in its own favour."""

from __future__ import annotations

import pytest

from hotstage.cli.demo import report

SECOND = 1_000_000_000
OFFSET = 1_700_000_000 * SECOND


def window(kind="stage_latency", opened=17.0, closed=31.0, severity="warning", score=3.0, **entity):
    return {
        "id": f"{kind}-{opened}",
        "kind": kind,
        "severity": severity,
        "score": score,
        "entity": entity or {"stage": "vision_encode", "modality": "image"},
        "opened_at_ns": round(opened * SECOND) + OFFSET,
        "closed_at_ns": None if closed is None else round(closed * SECOND) + OFFSET,
    }


def judge(windows, *, kind="stage_latency", start=15, end=30, run_end=45, entity=None):
    expected = {"stage": "vision_encode", "modality": "image"} if entity is None else entity
    truth = {
        "faults": [
            {
                "name": "f",
                "kind": kind,
                "entity": expected,
                "start_ns": start * SECOND,
                "end_ns": end * SECOND,
            }
        ]
    }
    return report.faults(truth, windows, run_end * SECOND, OFFSET)


def test_a_window_of_the_kind_and_place_is_a_detection_with_its_delay():
    (fault,) = judge([window(opened=17.25)])
    assert (fault["detected"], fault["kind_named"], fault["entity_named"]) == (True, True, True)
    assert fault["delay_seconds"] == pytest.approx(2.25)
    assert fault["window_closed"] is True
    assert fault["start_at"].endswith("Z")


def test_a_window_before_the_fault_is_no_detection():
    (fault,) = judge([window(opened=14.9)])
    assert fault["detected"] is False
    assert fault["delay_seconds"] is None
    assert fault["window_closed"] is None


def test_a_window_long_after_the_fault_is_no_detection():
    (fault,) = judge([window(opened=35.1)])
    assert fault["detected"] is False


def test_another_stage_is_detected_but_its_place_is_not_named():
    (fault,) = judge([window(stage="llm_decode", modality="text")])
    assert (fault["detected"], fault["entity_named"]) == (True, False)


def test_a_place_without_modality_in_the_truth_is_matched_by_stage_alone():
    (fault,) = judge([window()], entity={"stage": "vision_encode", "modality": None})
    assert fault["entity_named"] is True


def test_a_worse_window_of_another_kind_takes_the_name():
    (fault,) = judge([window(), window(kind="gpu_xid", severity="critical", gpu_uuid="GPU-1")])
    assert (fault["detected"], fault["kind_named"]) == (True, False)


def test_the_worse_window_of_another_fault_does_not_take_the_name():
    stall = {"stage": "vision_encode", "modality": "image"}
    truth = {
        "faults": [
            {"name": "f", "kind": "stage_latency", "entity": stall, "start_ns": 0, "end_ns": 30 * SECOND},
            {
                "name": "g",
                "kind": "alive_but_hung",
                "entity": {"instance": "i-0"},
                "start_ns": 20 * SECOND,
                "end_ns": 30 * SECOND,
            },
        ]
    }
    hung = window(kind="alive_but_hung", opened=25.0, severity="critical", instance="i-0")
    found = report.faults(truth, [window(), hung], 45 * SECOND, OFFSET)
    assert [fault["kind_named"] for fault in found] == [True, True]


def test_a_window_still_open_after_the_fault_is_said():
    (fault,) = judge([window(closed=None)])
    assert fault["window_closed"] is False


def test_a_fault_that_outlives_the_run_leaves_its_close_unknown():
    (fault,) = judge([window(closed=None)], end=60)
    assert fault["window_closed"] is None


def test_a_fault_that_never_began_and_hard_negatives_are_not_faults():
    assert judge([], start=50, end=60) == []
    assert judge([], kind=None) == []


def test_quantiles_are_nearest_rank_and_unknown_below_twenty():
    assert report.nearest_rank([float(n) for n in range(1, 20)], 0.95) is None
    assert report.nearest_rank([float(n) for n in range(1, 21)], 0.95) == 19.0
    assert report.nearest_rank([float(n) for n in range(1, 101)], 0.95) == 95.0
    assert report.nearest_rank([float(n) for n in range(1, 101)], 0.5) == 50.0


def test_calls_are_compared_in_the_simulated_processes_only():
    by_pid = {
        "7": {"cuLaunchKernel": {"counted": 5, "open": 1}},
        "8": {"cuLaunchKernel": {"counted": 2, "open": 0}, "cuMemAlloc_v2": {"counted": 1, "open": 0}},
        "99": {"cuLaunchKernel": {"counted": 1000, "open": 0}},
    }
    by_call = {name: {} for name in ("cuLaunchKernel", "cuMemFree_v2", "cuMemAlloc_v2")}
    coverage = {"calls": {"open": 9, "lost": 2, "by_call": by_call, "by_pid": by_pid}}
    made = {"cuLaunchKernel": 8, "cuInit": 3, "cuMemFree_v2": 0, "cuMemAlloc_v2": 1}
    assert report.calls(coverage, {"calls": made, "calls_by_pid": {"7": {}, "8": {}}}) == {
        "made": 9,
        "counted": 8,
        "open": 1,
        "lost": 2,
        "by_call": {
            "cuLaunchKernel": {"made": 8, "counted": 7},
            "cuMemAlloc_v2": {"made": 1, "counted": 1},
        },
        "unprobed": {"cuInit": 3},
    }


def test_a_request_without_an_outcome_is_still_open():
    records = [{"outcome": "ok"}, {"outcome": "refused"}, {"outcome": "error"}, {}]
    assert report.requests(records, {"started": 4}) == {
        "started": 4,
        "finished": 2,
        "open": 1,
        "refused": 1,
        "truth": {"started": 4},
    }


def test_stages_of_either_side_appear():
    measured = [{"stages": [{"stage": "llm_decode", "modality": "text", "seconds": 0.5}]}]
    truth = [{"stage": "vision_encode", "modality": "image", "began_ns": 0, "ended_ns": SECOND}]
    ours, theirs = report.stages(measured, truth)
    assert (ours["stage"], ours["requests"], ours["truth"]["requests"]) == ("llm_decode", 1, 0)
    assert (theirs["stage"], theirs["requests"], theirs["truth"]["requests"]) == ("vision_encode", 0, 1)


def test_kernels_are_compared_where_no_other_process_is_in_their_sum():
    coverage = {"calls": {"by_pid": {"7": {}}, "launched": {"kernels": 460}}}
    truth = {"kernels": 460, "calls_by_pid": {"7": {}, "8": {}}}
    assert report.kernels(coverage, truth) == {"run": 460, "told": 460}
    coverage["calls"]["by_pid"]["99"] = {}
    assert report.kernels(coverage, truth) == {"run": 460, "told": None}


def moved(state, at):
    return {"state": state, "at_ns": round(at * SECOND)}


@pytest.mark.parametrize(
    ("moves", "seconds", "times"),
    [
        ([], 0, 0),
        ([moved("on", 23), moved("off", 20)], 3, 1),
        ([moved("off", 40)], 5, 1),
        ([moved("on", 12), moved("off", 5)], 2, 1),
        ([moved("on", 60), moved("off", 50), moved("on", 23), moved("off", 20)], 3, 1),
        ([moved("off", 44), moved("on", 23), moved("off", 20)], 4, 2),
    ],
)
def test_the_time_without_probes_is_what_the_switch_moved_within_the_run(moves, seconds, times):
    found = report.unobserved(moves, 10 * SECOND, 45 * SECOND)
    assert found == {"seconds": pytest.approx(seconds), "times": times, "is_complete": True}


def test_moves_that_were_not_told_make_it_incomplete_or_unknown():
    many = [moved("on" if n % 2 else "off", 40 - n) for n in range(20)]
    assert report.unobserved(many, 0, 45 * SECOND)["is_complete"] is False
    assert report.unobserved(None, 0, 45 * SECOND) is None
