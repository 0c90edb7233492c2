# SPDX-License-Identifier: Apache-2.0
"""Marks, copies, the ledger and NVML become what the kernel judges allocations by."""

from __future__ import annotations

import numpy as np
import pytest
from support.pulses import SECOND, pulse, span

from hotstage.config.conflict import ConflictConfig
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState
from hotstage.frame.headroom import Headroom
from hotstage.frame.memory_types import FragmentationFigure, Memory, MemoryOfGpu, MemoryOfProcess
from hotstage.frame.token_demand import Copies, of_requests
from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.maps.conflict import TEXT, VISUAL, TokenBasis
from hotstage.probes.maps.layout import CALL_KEY_DTYPE, CALL_STAT_DTYPE, FINISHED_DTYPE, REQUEST_DTYPE
from hotstage.probes.memory_sample import STAGE_ROW_DTYPE, Basis
from hotstage.probes.samples import CallSample, FastSample
from hotstage.stages.stage import Modality, Stage

START = 1000 * SECOND
GIB = 1 << 30
UUID = "GPU-1"
UNKNOWN = FragmentationFigure("unknown", None, None, None, "nothing")
COPY = CUDA_DRIVER.by_symbol()["cuMemcpyHtoDAsync_v2"].call_id
NOTHING = np.zeros(0, REQUEST_DTYPE)


def requests(*given, pid=7):
    """(visual, text, stages that have ended, answered tokens) of image requests."""
    rows = np.zeros(len(given), REQUEST_DTYPE)
    for row, (visual, text, ended, answered) in zip(rows, given, strict=True):
        row["tgid"], row["output_tokens"] = pid, answered
        row["stage_mask"] = sum(1 << stage for stage in ended)
        for stage, tokens in ((Stage.media_decode, visual), (Stage.tokenize, text)):
            slot = row["stages"][stage]
            slot["tokens"], slot["count"], slot["modality"] = tokens, 1, Modality.image
    return rows


def stage_rows(*given, pid=7):
    """(stage, allocated so far, live)."""
    rows = np.zeros(len(given), STAGE_ROW_DTYPE)
    for row, (stage, allocated, live) in zip(rows, given, strict=True):
        row["tgid"], row["stage"], row["allocated_bytes"], row["live_bytes"] = pid, stage, allocated, live
    return rows


def memory(of_process=UNKNOWN, of_gpu=UNKNOWN, pid=7):
    process = MemoryOfProcess(pid, "server", 0, UUID, True, 0, 0, [], [], [], of_process)
    return Memory([MemoryOfGpu(UUID, 80 * GIB, 0, 80 * GIB, 0, 0, of_gpu)], [process], [], 0, 0)


def devices(used=70 * GIB, at_ns=START, is_fresh=True):
    rows = np.zeros(1, DEVICE_DTYPE)
    rows["uuid"], rows["at_ns"] = UUID.encode(), at_ns
    rows["memory_total_bytes"], rows["memory_used_bytes"] = 80 * GIB, used
    return DeviceSample(at_ns, DevicesState.sampling, "", rows, is_fresh=is_fresh)


def seen(at_ns, in_flight):
    nothing = np.zeros(0, FINISHED_DTYPE)
    return FastSample(at_ns, nothing, in_flight, nothing, (), nothing, {}, 0)


def learned(of_process=UNKNOWN, of_gpu=UNKNOWN):
    """2,000 visual tokens took 60,000 bytes each, 4,000 that were prefilled 20,000."""
    headroom = Headroom(ConflictConfig())
    headroom.know(START - SECOND, memory(of_process, of_gpu), stage_rows((8, 0, 0), (12, 0, 0)))
    ended = [
        span(Stage.vision_encode, Modality.image, START, 1, pid=7, tokens=2000),
        span(Stage.llm_prefill, Modality.image, START, 1, pid=7, tokens=4000),
    ]
    headroom.take(pulse(START, ended=ended))
    rows = stage_rows((8, 2000 * 60_000, 0), (12, 4000 * 20_000, 0))
    headroom.know(START, memory(of_process, of_gpu), rows)
    return headroom


def test_tokens_in_flight_are_those_of_marks_and_awaited_until_their_stage_ends():
    rows = requests((600, 100, [], 0), (300, 50, [Stage.vision_encode], 0), (40, 5000, [8, 12], 7))
    (demand,) = of_requests(rows).values()
    assert demand.basis is TokenBasis.KNOWN
    assert demand.tokens == (940, 5157)
    assert demand.awaited == (600, 700 + 350)


def test_tokens_of_several_processes_are_not_added():
    rows = np.concatenate([requests((600, 10, [], 0)), requests((1, 2, [], 0), pid=8)])
    assert {pid: each.tokens for pid, each in of_requests(rows).items()} == {7: (600, 10), 8: (1, 2)}


def copies(vision, prefill):
    keys, stats = np.zeros(2, CALL_KEY_DTYPE), np.zeros(2, CALL_STAT_DTYPE)
    keys["tgid"], keys["call"], keys["stage"] = 7, COPY, (Stage.vision_encode, Stage.llm_prefill)
    stats["bytes"] = vision, prefill
    return CallSample(START, keys, stats, np.ones(2, np.bool_), np.zeros((1, 242), np.uint64))


def test_without_marks_tokens_are_estimated_from_what_was_copied():
    look, token_bytes = Copies(), {VISUAL: 1000, TEXT: 8}
    assert look.look(copies(5000, 80), (), token_bytes) == {}
    (demand,) = look.look(copies(605_000, 8080), (), token_bytes).values()
    assert (demand.basis, demand.tokens, demand.awaited) == (TokenBasis.ESTIMATED, (600, 1000), (600, 1600))
    assert look.look(copies(905_000, 9080), (7,), token_bytes) == {}


def test_prices_come_from_what_the_ledger_saw_grow():
    (row,) = learned().inputs(seen(START, requests((600, 100, [], 0))), devices(), stage_rows()).values()
    assert row["bytes_per_token"].tolist() == [60_000, 20_000]
    assert (row["tokens"].tolist(), row["awaited"].tolist()) == ([600, 100], [600, 700])
    assert row["tokens_basis"] == TokenBasis.KNOWN


def test_a_token_has_no_price_before_enough_have_gone_through():
    headroom = Headroom(ConflictConfig())
    headroom.know(START, memory(), stage_rows((8, 0, 0)))
    (row,) = headroom.inputs(seen(START, requests((600, 100, [], 0))), devices(), stage_rows()).values()
    assert row["bytes_per_token"].tolist() == [0, 0]
    assert row["awaited"].tolist() == [600, 0]  # nothing of text has had memory here


def test_headroom_is_free_and_reusable_without_the_reserve():
    kept = FragmentationFigure("pool", 0.5, 3 * GIB, None, None)
    headroom = learned(of_process=kept)
    ((place, row),) = headroom.inputs(seen(START, NOTHING), devices(), stage_rows((8, 0, GIB))).items()
    assert place == (7, 0)
    assert row["headroom_bytes"] == int((10 + 3 + 1) * GIB - 0.02 * 80 * GIB)
    assert row["headroom_ns"] == START


def test_what_nvml_does_not_tell_is_unknown():
    headroom = learned()
    (row,) = headroom.inputs(seen(START, NOTHING), devices(is_fresh=False), stage_rows()).values()
    assert row["headroom_ns"] == 0
    (row,) = headroom.inputs(seen(START, NOTHING), devices(used=np.nan), stage_rows()).values()
    assert row["headroom_ns"] == 0


def test_fragmentation_is_the_process_own_else_its_gpus_and_slack_is_none():
    exact, cut = (
        FragmentationFigure("torch", 0.7, GIB, GIB // 4, None),
        FragmentationFigure("inferred", 0.9, GIB, 5, None),
    )
    slack = FragmentationFigure("pool", 0.8, GIB, None, None)
    for of_process, of_gpu, basis, permille in (
        (exact, cut, Basis.TORCH, 700),
        (slack, cut, Basis.INFERRED, 900),
        (slack, slack, Basis.UNKNOWN, 0),
        (UNKNOWN, UNKNOWN, Basis.UNKNOWN, 0),
    ):
        (row,) = learned(of_process, of_gpu).inputs(seen(START, NOTHING), devices(), stage_rows()).values()
        assert (row["fragmentation_basis"], row["fragmentation_permille"]) == (basis, permille)


def test_a_process_that_never_said_anything_has_unknown_tokens():
    (row,) = learned().inputs(seen(START, NOTHING), devices(), stage_rows()).values()
    assert row["tokens_basis"] == TokenBasis.UNKNOWN


def test_a_process_between_requests_is_known_to_have_none():
    headroom = learned()
    headroom.inputs(seen(START, requests((600, 100, [], 0))), devices(), stage_rows())
    (row,) = headroom.inputs(seen(START + SECOND, NOTHING), devices(), stage_rows()).values()
    assert (row["tokens_basis"], row["tokens"].tolist()) == (TokenBasis.KNOWN, [0, 0])


def test_switched_off_nothing_is_told():
    headroom = Headroom(ConflictConfig(enabled=False))
    headroom.know(START, memory(), stage_rows())
    assert headroom.inputs(seen(START, NOTHING), devices(), stage_rows()) == {}


def test_a_lossy_interval_says_unknown_for_as_long_as_it_may_show():
    headroom, in_flight = learned(), requests((600, 5000, [], 0))
    for lost in ({"stale": frozenset({"lost_requests"})}, {"lost": {"lost_allocations": 1}}):
        headroom.take(pulse(START, **lost))
        (row,) = headroom.inputs(seen(START + 2 * SECOND, in_flight), devices(), stage_rows()).values()
        assert (row["tokens_basis"], row["tokens"].tolist()) == (TokenBasis.UNKNOWN, [0, 0])
        (row,) = headroom.inputs(seen(START + 4 * SECOND, in_flight), devices(), stage_rows()).values()
        assert row["tokens_basis"] == TokenBasis.KNOWN
    headroom.take(pulse(START + 5 * SECOND, lost={"lost_stacks": 3}))
    (row,) = headroom.inputs(seen(START + 5 * SECOND, in_flight), devices(), stage_rows()).values()
    assert row["tokens_basis"] == TokenBasis.KNOWN, "what was lost says nothing of tokens"


ALL_ONES = 2**64 - 1


@pytest.mark.parametrize("live", [ALL_ONES, 1 << 49])
def test_what_no_gpu_has_makes_the_headroom_unknown(live):
    (row,) = learned().inputs(seen(START, NOTHING), devices(), stage_rows((8, 0, live))).values()
    assert (row["headroom_ns"], row["headroom_bytes"]) == (0, 0)


def test_what_an_allocator_claims_to_keep_beyond_any_gpu_makes_it_unknown_too():
    forged = FragmentationFigure("torch", float("inf"), ALL_ONES, ALL_ONES, None)
    (row,) = learned(of_process=forged).inputs(seen(START, NOTHING), devices(), stage_rows()).values()
    assert (row["headroom_ns"], row["fragmentation_permille"]) == (0, 1000)


def test_a_sum_that_cannot_be_leaves_the_price_as_it_was():
    headroom, in_flight = learned(), requests((600, 100, [], 0))
    for second, allocated in enumerate((ALL_ONES, 5, 2000 * 60_000), 1):
        headroom.take(pulse(START, ended=[span(Stage.vision_encode, Modality.image, START, 1, pid=7)]))
        headroom.know(START + second, memory(), stage_rows((8, allocated, 0), (12, 4000 * 20_000, 0)))
        (row,) = headroom.inputs(seen(START, in_flight), devices(), stage_rows()).values()
        assert 60_000 <= row["bytes_per_token"][VISUAL] <= 120_001


def test_copies_beyond_any_gpu_make_the_tokens_unknown():
    look, token_bytes = Copies(), {VISUAL: 1, TEXT: 1}
    look.look(copies(0, 0), (), token_bytes)
    (demand,) = look.look(copies(ALL_ONES, ALL_ONES), (), token_bytes).values()
    assert (demand.basis, demand.tokens) == (TokenBasis.UNKNOWN, (0, 0))
