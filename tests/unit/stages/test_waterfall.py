# SPDX-License-Identifier: Apache-2.0
"""A request's stages and waits: what decided each moment of it, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.kernel_rows import MS, KernelRequest, Modality, Stage

from hotstage.probes.maps.layout import FINISHED_DTYPE, NO_DEVICE
from hotstage.stages.critical_path import critical_path, critical_paths
from hotstage.stages.timeline import timeline_of
from hotstage.stages.waterfall import waterfall
from hotstage.stages.waterfall_types import SegmentContext

START = 10_000 * MS


def row_of(*spans, total=100, output=0, opened=()):
    """`spans`: (stage, begin ms, end ms), in the order of their begins; `opened` never end."""
    request = KernelRequest(1, at_ns=START)
    for stage, began, ended in spans:
        request.begin(stage, START + began * MS).end(stage, START + ended * MS)
    for stage, began in opened:
        request.begin(stage, START + began * MS)
    return request.finished(START + total * MS, 0, output)


def shown(row):
    return waterfall(row, 1, 0, {}).segments


def decided(row):
    """Name → ms, without what decided nothing."""
    found = {}
    for each in shown(row):
        if each.critical_seconds:
            found[each.name] = round(found.get(each.name, 0) + each.critical_seconds * 1e3, 6)
    return found


def test_stages_in_a_row_and_the_gaps_between_them():
    row = row_of((Stage.tokenize, 10, 20), (Stage.llm_prefill, 30, 50), (Stage.llm_decode, 55, 90), output=8)
    found = shown(row)
    assert [(each.kind, each.name, each.offset_seconds, each.duration_seconds) for each in found] == [
        ("wait", "queue", 0.0, 0.01),
        ("stage", "tokenize", 0.01, 0.01),
        ("wait", "queue", 0.02, 0.01),
        ("stage", "llm_prefill", 0.03, 0.02),
        ("wait", "delivery", 0.05, 0.005),
        ("stage", "llm_decode", 0.055, 0.035),
        ("wait", "delivery", 0.09, 0.01),
    ]
    assert [(each.after, each.before) for each in found if each.kind == "wait"] == [
        (None, "tokenize"),
        ("tokenize", "llm_prefill"),
        ("llm_prefill", "llm_decode"),
        ("llm_decode", None),
    ]
    assert sum(each.critical_seconds for each in found) == pytest.approx(0.1, abs=1e-12)
    assert [each.decides_end for each in found] == [False] * 6 + [True]
    assert {each.placement for each in found} == {"exact", "gap"}


def test_of_two_encoders_side_by_side_the_slower_one_decides():
    align = (Stage.cross_modal_align, 60, 100)
    row = row_of((Stage.vision_encode, 0, 60), (Stage.audio_encode, 1, 40), align)
    assert decided(row) == {"vision_encode": 60, "cross_modal_align": 40}
    by_name = {each.name: each for each in shown(row)}
    assert by_name["audio_encode"].critical_seconds == 0
    assert by_name["cross_modal_align"].decides_end


def test_stages_that_overlap_in_part_share_the_time():
    row = row_of((Stage.llm_prefill, 0, 60), (Stage.kv_transfer, 40, 100))
    assert decided(row) == {"llm_prefill": 40, "kv_transfer": 60}


def test_what_encloses_all_decides_only_what_nothing_else_does():
    row = row_of((Stage.gateway, 0, 100), (Stage.tokenize, 10, 20), (Stage.llm_prefill, 20, 70))
    assert decided(row) == {"gateway": 40, "tokenize": 10, "llm_prefill": 50}
    assert not [each for each in shown(row) if each.kind == "wait"]


def test_the_marked_queue_is_a_wait_and_what_follows_it_decides():
    row = row_of((Stage.tokenize, 0, 10), (Stage.queue, 10, 60), (Stage.llm_prefill, 60, 100))
    (queue,) = [each for each in shown(row) if each.kind == "wait"]
    assert (queue.name, queue.placement, queue.critical_seconds, queue.runs) == ("queue", "exact", 0.05, 1)


@pytest.mark.parametrize(
    ("spans", "name"),
    [
        ([(Stage.gateway, 10, 100)], "unmarked"),
        ([(Stage.vision_encode, 10, 100)], "queue"),
        ([(Stage.tokenize, 0, 90)], "unmarked"),
        ([(Stage.detokenize, 0, 90)], "delivery"),
        ([(Stage.llm_prefill, 0, 50), (Stage.kv_transfer, 60, 100)], "delivery"),
        ([(Stage.llm_decode, 0, 50), (Stage.other, 60, 100)], "unmarked"),
        ([], "unmarked"),
    ],
)
def test_a_gap_is_named_by_what_it_leads_to(spans, name):
    assert [each.name for each in shown(row_of(*spans)) if each.kind == "wait"] == [name]


def test_runs_without_a_place_are_taken_from_the_gap_of_the_last_one():
    # Decode in three runs: 55–65, 70–80, 85–90; the kernel keeps 25 ms, three ends and the last begin.
    runs = [(Stage.llm_decode, 55, 65), (Stage.llm_decode, 70, 80), (Stage.llm_decode, 85, 90)]
    row = row_of((Stage.llm_prefill, 0, 50), *runs, (Stage.detokenize, 90, 100), output=9)
    by_name = {each.name: each for each in shown(row)}
    decode = by_name["llm_decode"]
    assert (decode.placement, decode.runs, decode.offset_seconds) == ("earliest", 3, 0.05)
    assert (decode.last_begin_seconds, decode.until_seconds) == (0.085, 0.1)
    assert decode.duration_seconds == decode.critical_seconds == 0.025
    gap = by_name["unmarked"]
    assert (gap.placement, gap.offset_seconds) == ("sum", 0.05)
    assert gap.duration_seconds == pytest.approx(0.015)
    assert sum(each.critical_seconds for each in by_name.values()) == pytest.approx(0.1, abs=1e-12)


def test_runs_of_a_batch_lie_between_the_prefill_and_the_end_of_the_request():
    # As batches leave it: the last of many runs begins late, and their sum is longer than what is left.
    runs = [(Stage.llm_decode, began, began + 3) for began in range(44, 71, 3)]
    row = row_of((Stage.tokenize, 0, 10), (Stage.llm_prefill, 10, 43), *runs, total=73, output=9)
    found = shown(row)
    (decode,) = [each for each in found if each.name == "llm_decode"]
    assert decode.last_begin_seconds + decode.duration_seconds > 0.073
    assert (decode.offset_seconds, decode.until_seconds) == (0.043, 0.073)
    assert decode.duration_seconds == pytest.approx(0.027)
    (rest,) = [each for each in found if each.placement == "sum"]
    assert (rest.offset_seconds, rest.until_seconds) == (0.043, 0.073)
    assert sum(each.critical_seconds for each in found) == pytest.approx(0.073, abs=1e-12)


def test_a_stage_that_ran_before_and_never_ended_counts_both():
    row = row_of((Stage.tokenize, 0, 10), (Stage.llm_decode, 20, 40), opened=[(Stage.llm_decode, 70)])
    (decode,) = [each for each in shown(row) if each.name == "llm_decode"]
    assert (decode.placement, decode.until_seconds, decode.last_begin_seconds) == ("earliest", 0.1, 0.07)
    assert decode.duration_seconds == pytest.approx(0.05)


def test_no_segment_of_a_random_request_leaves_it_or_its_bounds():
    for row in random_rows(np.random.default_rng(7)):
        found = waterfall(row, 1, 0, {})
        for each in found.segments:
            assert 0 <= each.offset_seconds <= each.until_seconds <= found.request.duration_seconds
            assert each.duration_seconds <= each.until_seconds - each.offset_seconds + 1e-12
            if each.last_begin_seconds is not None:
                assert each.offset_seconds <= each.last_begin_seconds <= each.until_seconds


def test_runs_longer_than_the_gaps_that_may_hold_them_decide_no_more_than_those():
    runs = [(Stage.vision_encode, 0, 40), (Stage.vision_encode, 50, 55)]
    row = row_of((Stage.media_fetch, 0, 45), *runs, (Stage.llm_prefill, 60, 100))
    by_name = {each.name: each for each in shown(row)}
    assert by_name["vision_encode"].duration_seconds == 0.045
    assert by_name["vision_encode"].critical_seconds == 0.015
    assert sum(each.critical_seconds for each in by_name.values()) == pytest.approx(0.1, abs=1e-12)


def test_a_stage_that_never_ended_lasts_to_the_end():
    row = row_of((Stage.tokenize, 0, 10), opened=[(Stage.llm_prefill, 10)])
    (prefill,) = [each for each in shown(row) if each.name == "llm_prefill"]
    assert (prefill.is_open, prefill.duration_seconds, prefill.runs) == (True, 0.09, 0)
    assert (prefill.critical_seconds, prefill.decides_end) == (0.09, True)


def test_before_the_first_token_is_what_decided_until_then():
    row = row_of((Stage.tokenize, 10, 20), (Stage.llm_prefill, 20, 50), (Stage.llm_decode, 55, 90), output=8)
    found = waterfall(row, 1, 0, {})
    assert (found.request.ttft_seconds, found.request.ttft_basis) == (0.055, "decode_begin")
    early = [each.before_first_token_seconds for each in found.segments]
    assert early == pytest.approx([0.01, 0.01, 0.03, 0.005, 0, 0])
    assert all(
        each.before_first_token_seconds is None for each in shown(row_of((Stage.vision_encode, 0, 10)))
    )


def test_the_slowest_is_the_segment_that_decided_most():
    row = row_of((Stage.tokenize, 60, 100))
    assert waterfall(row, 1, 0, {}).request.slowest.name == "queue"
    slowest = waterfall(row_of((Stage.tokenize, 20, 100)), 1, 0, {}).request.slowest
    assert (slowest.name, slowest.kind, slowest.seconds, slowest.share) == ("tokenize", "stage", 0.08, 0.8)


def test_nothing_but_a_begin_and_an_end_at_once_is_no_segment():
    found = waterfall(row_of(total=0), 1, 0, {})
    assert (found.segments, found.request.slowest, found.request.duration_seconds) == ([], None, 0.0)


def random_rows(random):
    rows = []
    for _ in range(300):
        row = row_of(total=0)
        row["ended_ns"] = START + random.integers(0, 10**9)
        slots = row["stages"]
        slots["count"] = random.choice([0, 0, 1, 1, 3], len(slots))
        slots["open"] = random.choice([0, 0, 0, 1], len(slots))
        slots["began_ns"] = START + random.integers(-(10**7), 11 * 10**8, len(slots))
        slots["total_ns"] = random.integers(0, 10**9, len(slots))
        rows.append(row)
    return rows


def test_random_requests_add_up_to_the_nanosecond():
    rows = random_rows(np.random.default_rng(5))
    line = timeline_of(np.array(rows, FINISHED_DTYPE))
    for until in (None, line.duration_ns // 3):
        path = critical_path(line, until)
        assert (path.decided_ns >= 0).all() and (path.gap_left_ns >= 0).all()
        whole = path.decided_ns.sum(axis=1) + path.waits_ns()[:, 1:].sum(axis=1)
        assert (whole == (line.duration_ns if until is None else until)).all()


def test_both_paths_walked_at_once_are_those_walked_one_by_one():
    line = timeline_of(np.array(random_rows(np.random.default_rng(6)), FINISHED_DTYPE))
    until = line.duration_ns // 3
    until[::5] = 0  # without a first token
    for found, alone in zip(
        critical_paths(line, until), (critical_path(line), critical_path(line, until)), strict=True
    ):
        assert (found.decided_ns == alone.decided_ns).all()
        assert (found.last_slot == alone.last_slot).all()
        assert (found.waits_ns() == alone.waits_ns()).all()


def test_hostile_clocks_give_a_finite_request():
    row = row_of((Stage.tokenize, 0, 10))
    row["started_ns"], row["stages"]["total_ns"] = 2**64 - 1, 2**64 - 1
    assert waterfall(row, 1, 0, {}).request.duration_seconds == 0
    row["started_ns"], row["ended_ns"] = 0, 2**64 - 1
    assert waterfall(row, 1, 0, {}).request.duration_seconds > 0


def test_contexts_are_those_of_the_stage_with_the_uuid_of_its_processs_device():
    row = row_of((Stage.vision_encode, 0, 50), (Stage.llm_prefill, 50, 100))
    for at, (context, stage, device) in enumerate(
        [(0xA, Stage.vision_encode, 1), (0xB, Stage.llm_prefill, 0), (0xC, Stage.llm_prefill, NO_DEVICE)]
    ):
        bound = row["contexts"][at]
        bound["context"], bound["stage_mask"], bound["device"] = context, 1 << stage, device
    encode, prefill = waterfall(row, 1, 0, {}, {(100, 1): "GPU-b", (7, 0): "GPU-z"}).segments
    assert encode.contexts == [SegmentContext(0xA, 1, "GPU-b")]
    assert prefill.contexts == [SegmentContext(0xB, 0, None), SegmentContext(0xC, None, None)]


def test_a_modality_is_told_with_its_stage():
    request = KernelRequest(1, at_ns=START)
    request.begin(Stage.vision_encode, START, modality=Modality.image, tokens=64)
    (stage,) = shown(request.end(Stage.vision_encode, START + MS).finished(START + MS))
    assert (stage.modality, stage.tokens, stage.name) == ("image", 64, "vision_encode")


def test_the_wait_before_the_first_token_is_told_though_runs_of_later_stages_fill_it_in_the_whole():
    # Runs of `detokenize`, whose modality somebody else marked last: only the last begin is known.
    runs = ((Stage.detokenize, 10, 35), (Stage.detokenize, 50, 70), (Stage.detokenize, 80, 100))
    row = row_of((Stage.llm_prefill, 40, 45), *runs, output=5)
    row["modality_first_words"] = 0
    row["first_token_ns"], row["first_tokens"] = START + 48 * MS, 1
    taken = waterfall(row, 1, 0, {})
    assert taken.request.ttft_seconds == pytest.approx(0.048)
    assert sum(each.critical_seconds for each in taken.segments) == pytest.approx(0.1)
    assert sum(each.before_first_token_seconds for each in taken.segments) == pytest.approx(0.048)
    delivery = next(each for each in taken.segments if each.offset_seconds == 0.045)
    assert (delivery.kind, delivery.name, delivery.critical_seconds) == ("wait", "delivery", 0.0)
    assert delivery.before_first_token_seconds == pytest.approx(0.003)
