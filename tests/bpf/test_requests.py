# SPDX-License-Identifier: Apache-2.0
"""A request from its first mark to its record in the ring, by marks on one thread and across threads."""

from __future__ import annotations

import time

from tests.bpf.conftest import Probes, Workload

VISION, PREFILL, DECODE = 8 | 1 << 8, 12 | 0 << 8, 13 | 0 << 8
PREPROCESS = 3 | 1 << 8


def test_a_request_is_told_once_with_all_that_was_said_of_it(probes: Probes, workload: Workload) -> None:
    probes.maps.read_fast(0)
    before = time.monotonic_ns()
    workload.do("begin", "chat-17", 7001)
    workload.do("stage_begin", "-", VISION, 7001, 576)
    workload.launch(61, 0x55)
    workload.call("alloc", 2, 4096)
    workload.do("stage_end", "-", VISION, 7001, 577)
    workload.do("span_begin", "-", DECODE, 7001, 0)
    workload.do("tokens", "-", 7001, DECODE, 5)

    sample = probes.maps.read_fast(time.monotonic_ns())
    (live,) = sample.requests[sample.requests["tgid"] == workload.pid]
    assert live["id"] == b"chat-17"
    assert (live["endpoint"], live["instance"], live["model"]) == (b"/v1/encode", b"i-0", b"vlm")
    assert live["traceparent"] == b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert live["input_digest"] == ~7001 & 2**64 - 1
    assert (live["stage_mask"], live["open_mask"]) == (1 << 8, 1 << 13)
    assert live["output_tokens"] == 5
    vision, decode = live["stages"][8], live["stages"][13]
    assert (vision["count"], vision["open"], vision["tokens"], vision["modality"]) == (1, 0, 577, 1)
    assert before < vision["began_ns"] < vision["began_ns"] + vision["total_ns"] < decode["began_ns"]
    assert (decode["count"], decode["open"]) == (0, 1)
    assert live["launches"] == 61
    assert live["bytes"] == 2 * 4096
    assert live["cuda_stream"] == 0x55

    workload.do("span_end", "-", DECODE, 7001, 5)
    workload.do("end", "-", 7001, 1, 6)
    sample = probes.maps.read_fast(time.monotonic_ns())
    (done,) = sample.finished[sample.finished["tgid"] == workload.pid]
    assert (done["outcome"], done["output_tokens"], done["request_hash"]) == (1, 6, 7001)
    assert done["input_digest"] == live["input_digest"]
    assert (done["stage_mask"], done["open_mask"]) == (1 << 8 | 1 << 13, 0)
    assert done["started_ns"] < done["ended_ns"] < time.monotonic_ns()
    assert not len(probes.requests(workload.pid))
    assert not len(probes.maps.read_fast(0).finished)


def test_the_first_and_the_last_word_of_output_tokens_have_their_times(
    probes: Probes, workload: Workload
) -> None:
    workload.do("begin", "tokens", 7003)
    assert probes.requests(workload.pid)["first_token_ns"] == 0
    times = []
    # Saying the same again, or less, tells of no token.
    for tokens in (1, 4, 4, 2, 9, 9):
        workload.do("tokens", "-", 7003, DECODE, tokens)
        times.append(time.monotonic_ns())
    (live,) = probes.requests(workload.pid)
    assert (live["first_tokens"], live["last_tokens"], live["output_tokens"]) == (1, 9, 9)
    assert live["started_ns"] < live["first_token_ns"] < times[0]
    assert times[3] < live["last_token_ns"] < times[4]


def test_a_stage_entered_again_adds_up(probes: Probes, workload: Workload) -> None:
    workload.do("begin", "loop", 7002)
    for _ in range(7):
        workload.do("span_begin", "-", DECODE, 7002, 0)
        workload.do("span_end", "-", DECODE, 7002, 3)
    (live,) = probes.requests(workload.pid)
    slot = live["stages"][13]
    assert (slot["count"], slot["open"], slot["tokens"]) == (7, 0, 21)
    assert slot["total_ns"] < live["updated_ns"] - live["started_ns"]
    workload.do("end", "-", 7002, 0, 0)


def test_two_spans_of_one_stage_at_once_count_the_time_once(probes: Probes, workload: Workload) -> None:
    workload.do("begin", "wide", 7003)
    workload.do("span_begin", "-", PREPROCESS, 7003, 0)
    workload.do("span_begin", "-", PREPROCESS, 7003, 0)
    (live,) = probes.requests(workload.pid)
    assert live["stages"][3]["open"] == 2
    workload.do("span_end", "-", PREPROCESS, 7003, 0)
    (live,) = probes.requests(workload.pid)
    assert (live["stages"][3]["open"], live["stages"][3]["total_ns"]) == (1, 0)
    assert live["open_mask"] == 1 << 3
    workload.do("span_end", "-", PREPROCESS, 7003, 0)
    (live,) = probes.requests(workload.pid)
    assert (live["stages"][3]["count"], live["stages"][3]["open"], live["open_mask"]) == (2, 0, 0)
    assert live["stages"][3]["total_ns"] == live["updated_ns"] - live["stages"][3]["began_ns"]
    workload.do("end", "-", 7003, 0, 0)


def test_the_modality_word_says_where_the_request_was_last_seen(probes: Probes, workload: Workload) -> None:
    workload.do("begin", "where", 7004)
    workload.do("span_begin", "-", VISION, 7004, 0)
    (live,) = probes.requests(workload.pid)
    word = int(live["modality_words"][1])
    assert word >> 56 == 8
    assert abs(((word & (1 << 48) - 1) << 8) - int(live["updated_ns"])) < 256
    assert not live["modality_words"][0]
    workload.do("end", "-", 7004, 2, 0)


def test_the_models_name_gives_the_model_id(probes: Probes, workload: Workload) -> None:
    workload.do("begin", "model", 7005)
    expected = 0x811C9DC5
    for byte in b"vlm":
        expected = (expected ^ byte) * 0x01000193 % 2**32
    assert probes.requests(workload.pid)[0]["model_id"] == expected
    workload.do("end", "-", 7005, 0, 0)


def test_marks_of_an_unknown_request_are_counted_and_make_none(probes: Probes, workload: Workload) -> None:
    before = probes.losses().get("missed_request", 0)
    workload.do("stage_begin", "-", VISION, 7999, 0)
    workload.do("stage_end", "-", VISION, 7999, 0)
    workload.do("span_begin", "-", VISION, 7999, 0)
    workload.do("tokens", "-", 7999, VISION, 1)
    workload.do("end", "-", 7999, 0, 0)
    assert probes.losses()["missed_request"] - before == 5
    assert not len(probes.requests(workload.pid))


def test_an_id_used_again_before_its_end_starts_afresh(probes: Probes, workload: Workload) -> None:
    before = probes.losses().get("reused_request", 0)
    workload.do("begin", "twice", 7006)
    workload.do("span_begin", "-", VISION, 7006, 0)
    workload.do("begin", "twice", 7006)
    assert probes.losses()["reused_request"] - before == 1
    (live,) = probes.requests(workload.pid)
    assert live["open_mask"] == 0
    workload.do("end", "-", 7006, 0, 0)


def test_an_end_without_a_begin_changes_nothing(probes: Probes, workload: Workload) -> None:
    workload.do("begin", "late", 7007)
    workload.do("span_end", "-", VISION, 7007, 9)
    (live,) = probes.requests(workload.pid)
    assert (live["stage_mask"], live["stages"][8]["count"], live["stages"][8]["open"]) == (0, 0, 0)
    workload.do("end", "-", 7007, 0, 0)


def test_requests_of_a_dead_process_are_handed_over(probes: Probes, workload: Workload) -> None:
    workload.do("begin", "orphan", 7008)
    workload.close()
    gone = probes.maps.forget_processes([workload.pid])
    assert gone.requests["id"].tolist() == [b"orphan"]
    assert not len(probes.requests(workload.pid))
