# SPDX-License-Identifier: Apache-2.0
"""How many launches had the right stage: in a cell of one stage exactly, in a shared one at most."""

from __future__ import annotations

import numpy as np
import pytest

from hotstage.cli.bench.confusion import Cell, compare, counted_launches, made_launches
from hotstage.cli.bench.stages import p95_errors
from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.maps.layout import CALL_KEY_DTYPE, CALL_STAT_DTYPE
from hotstage.probes.samples import CallSample
from hotstage.stages.stage import NO_STAGE, Stage

VISION, PREFILL = Cell(7, "cuLaunchKernel", 0), Cell(7, "cuLaunchKernelEx", 1)


def test_calls_counted_for_another_stage_are_wrong_even_where_the_sums_agree():
    made = {VISION: {"vision_encode": 100}, PREFILL: {"llm_prefill": 100}}
    swapped = {
        VISION: {"llm_prefill": 10, "vision_encode": 90},
        PREFILL: {"vision_encode": 10, "llm_prefill": 90},
    }
    verdict = compare(made, swapped)
    assert (verdict.made, verdict.right, verdict.accuracy) == (200, 180, 0.9)
    assert verdict.shared == 0
    assert compare(made, made).accuracy == 1.0


def test_what_is_not_attributed_or_not_counted_is_not_right():
    verdict = compare({VISION: {"vision_encode": 100}}, {VISION: {None: 30, "vision_encode": 60}})
    assert (verdict.right, verdict.unattributed_ratio) == (60, 0.3)


def test_a_call_of_no_stage_is_right_without_one_and_wrong_with_one():
    made = {VISION: {None: 40}}
    assert compare(made, {VISION: {None: 40}}).accuracy == 1.0
    assert compare(made, {VISION: {"other": 40}}).accuracy == 0.0


def test_wrong_is_what_was_told_for_a_stage_that_did_not_make_it():
    made = {VISION: {"vision_encode": 100}, PREFILL: {"llm_prefill": 100}}
    told = {VISION: {None: 98, "llm_decode": 2}, PREFILL: {"llm_prefill": 70, None: 30}}
    verdict = compare(made, told)
    assert (verdict.wrong, verdict.wrong_ratio) == (2, 2 / 72)
    assert verdict.accuracy_of({"llm_prefill"}) == 0.7
    assert verdict.accuracy_of({"sample"}) is None
    assert compare(made, {}).wrong_ratio == 0.0
    assert compare({}, {}).wrong_ratio is None


def test_cells_of_several_stages_are_told():
    verdict = compare({VISION: {"vision_encode": 5, None: 3}, PREFILL: {"llm_prefill": 9}}, {})
    assert (verdict.shared, verdict.right) == (8, 0)
    assert [(score.stage, score.made) for score in verdict.stages] == [
        ("llm_prefill", 9),
        ("vision_encode", 5),
        (None, 3),
    ]


def test_nothing_made_has_no_accuracy():
    assert compare({}, {}).accuracy is None
    assert compare({}, {}).unattributed_ratio is None


def test_launches_of_both_sides_fall_into_the_same_cells():
    call = CUDA_DRIVER.by_symbol()
    keys = np.zeros(5, CALL_KEY_DTYPE)
    stats = np.zeros(5, CALL_STAT_DTYPE)
    rows = [
        (7, "cuLaunchKernel", Stage.vision_encode, 0, 3),
        (7, "cuLaunchKernel_ptsz", Stage.vision_encode, 0, 4),  # the same call
        (7, "cuLaunchKernelEx", NO_STAGE, 1, 5),
        (7, "cuMemAlloc_v2", Stage.vision_encode, 0, 100),  # no launch
        (8, "cuLaunchKernel", Stage.vision_encode, 0, 100),  # another process
    ]
    for number, (pid, symbol, stage, device, count) in enumerate(rows):
        keys[number]["tgid"], keys[number]["call"] = pid, call[symbol].call_id
        keys[number]["stage"], keys[number]["device"] = stage, device
        stats[number]["count"] = count
    sample = CallSample(0, keys, stats, np.zeros(5, np.bool_), np.zeros((1, 242), np.uint64))
    truth = [
        {
            "pid": 7,
            "function": "cuLaunchKernel",
            "device": 0,
            "stage": "vision_encode",
            "modality": "image",
            "made": 7,
        },
        {"pid": 7, "function": "cuLaunchKernelEx", "device": 1, "stage": None, "modality": None, "made": 5},
    ]
    assert (
        counted_launches(sample, [7])
        == made_launches(truth)
        == {VISION: {"vision_encode": 7}, PREFILL: {None: 5}}
    )


def test_the_error_of_a_p95_needs_twenty_of_both():
    slow = [0.1] * 18 + [0.2, 0.4]
    true = [0.1] * 18 + [0.25, 0.4]
    found = p95_errors({("queue", "text"): slow, ("sample", "text"): [1.0] * 30}, {("queue", "text"): true})
    assert found["queue text"]["p95_seconds"] == 0.2
    assert found["queue text"]["error_ratio"] == pytest.approx(0.2)
    assert found["sample text"]["error_ratio"] is None
    assert found["sample text"]["true_requests"] == 0
