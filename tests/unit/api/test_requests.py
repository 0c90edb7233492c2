# SPDX-License-Identifier: Apache-2.0
"""Finished requests by number, bounded, with the time of each stage; filtered, and one by its id."""

from __future__ import annotations

import numpy as np
import pytest
from support.kernel_rows import MS, KernelRequest

from hotstage.api.requests import Filter, RequestLog
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.stage import Modality, Stage
from hotstage.stages.waterfall_types import StageTime


def finished(number, outcome=0, encode_ms=30, total_ms=100, modality=Modality.image):
    stage = {Modality.image: Stage.vision_encode, Modality.audio: Stage.audio_encode}[modality]
    request = KernelRequest(number, at_ns=100 * MS)
    request.begin(stage, 110 * MS, modality=modality, tokens=64)
    request.end(stage, (110 + encode_ms) * MS)
    return request.finished((100 + total_ms) * MS, outcome=outcome, output_tokens=17)


def rows(*finished_rows):
    return np.array(list(finished_rows), FINISHED_DTYPE)


@pytest.fixture
def log(clock):
    return RequestLog(clock, capacity=4)


def numbers(found):
    return [row.seq for row in found.requests]


def test_a_request_comes_with_its_stages_and_when_it_ended(log, clock):
    log.add(rows(finished(1)), open_requests=3)
    body = log.document(after=0, limit=10)
    (row,) = body.requests
    assert (row.seq, row.id, row.endpoint, row.model) == (1, "r-1", "/v1/chat", "vlm")
    assert (row.outcome, row.output_tokens, row.duration_seconds) == ("ok", 17, 0.1)
    assert row.ended_at_ns == clock.WALL_OFFSET_NS + 200 * MS
    assert row.ended_at == "2023-11-14T22:13:20.200Z"
    assert row.started_at_ns == clock.WALL_OFFSET_NS + 100 * MS
    assert row.stages == [StageTime("vision_encode", "image", 0.03, 1, 64)]
    assert body.totals == {"started": 4, "finished": 1, "open": 3, "refused": 0}


def test_a_request_comes_with_the_digest_of_its_input_or_none(log):
    told, untold = finished(1), finished(2)
    told["input_digest"] = 0xABC
    log.add(rows(told, untold), 0)
    assert [row.input_digest for row in log.document(0, 10).requests] == ["0000000000000abc", None]


def test_a_reader_goes_on_from_where_it_was(log):
    log.add(rows(finished(1), finished(2)), 0)
    log.add(rows(finished(3)), 0)
    first = log.document(after=0, limit=2)
    assert (numbers(first), first.next) == ([1, 2], 2)
    second = log.document(after=first.next, limit=2)
    assert ([row.id for row in second.requests], second.next) == (["r-3"], 3)
    third = log.document(after=3, limit=2)
    assert (third.requests, third.next, third.totals) == ([], 3, first.totals)


def test_a_reader_who_filters_goes_on_behind_what_did_not_match(log):
    log.add(rows(finished(1), finished(2, modality=Modality.audio), finished(3)), 0)
    audio = Filter(modality="audio")
    found = log.document(0, 2, audio)
    assert (numbers(found), found.next) == ([2], 3)
    found = log.document(0, 1, Filter(modality="image"))
    assert (numbers(found), found.next) == ([1], 1)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(stage="audio_encode"), [2]),
        (Filter(stage="tokenize"), []),
        (Filter(stage="no_such_stage"), []),
        (Filter(modality="image"), [1, 3]),
        (Filter(outcome="error"), [3]),
        (Filter(endpoint="/v1/chat", instance="i-0"), [1, 2, 3]),
        (Filter(endpoint="/v1/cha"), []),
        (Filter(stage="vision_encode", outcome="ok"), [1]),
    ],
)
def test_a_filter_takes_what_matches_all_of_it(log, wanted, expected):
    log.add(rows(finished(1), finished(2, modality=Modality.audio), finished(3, outcome=1)), 0)
    assert numbers(log.document(0, 10, wanted)) == expected


@pytest.mark.parametrize("wanted", ["/v1/__", "/v1/\u00e9"])
def test_a_name_is_filtered_as_it_is_shown(log, wanted):
    odd = finished(1)
    odd["endpoint"] = b"/v1/\xc3\xa9\0left over"
    log.add(rows(odd, finished(2)), 0)
    (row,) = log.document(0, 10, Filter(endpoint=wanted)).requests
    assert (row.seq, row.endpoint) == (1, "/v1/__")


def test_the_slowest_come_first_by_the_whole_or_by_a_stage(log):
    log.add(rows(finished(1, encode_ms=5, total_ms=300), finished(2, encode_ms=50, total_ms=100)), 0)
    log.add(rows(finished(3, encode_ms=20, total_ms=200)), 0)
    found = log.document(0, 2, Filter(order="slowest"))
    assert (numbers(found), found.next) == ([1, 3], 3)
    by_stage = Filter(stage="vision_encode", order="slowest")
    assert numbers(log.document(0, 10, by_stage)) == [2, 3, 1]


def test_the_newest_come_first_where_they_are_wanted(log):
    log.add(rows(finished(1), finished(2)), 0)
    log.add(rows(finished(3)), 0)
    found = log.document(0, 2, Filter(order="newest"))
    assert (numbers(found), found.next) == ([3, 2], 3)


def test_an_own_stage_is_filtered_by_the_name_that_its_process_gave_it(clock):
    row = finished(1)
    row["own_stages"], row["stages"]["count"][19] = 40 << 8, 1
    log = RequestLog(clock, own_names=lambda: {(100, 40): "rerank", (101, 40): "other_rerank"})
    log.add(rows(row), 0)
    assert numbers(log.document(0, 1, Filter(stage="rerank"))) == [1]
    assert log.document(0, 1).requests[0].stages[1].stage == "rerank"
    assert numbers(log.document(0, 1, Filter(stage="other_rerank"))) == []


def test_a_waterfall_is_of_the_newest_with_an_id_or_of_a_number(log):
    log.add(rows(finished(1), finished(2)), 0)
    log.add(rows(finished(1, total_ms=500)), 0)
    found = log.waterfall("r-1")
    assert (found.request.seq, found.request.duration_seconds) == (3, 0.5)
    assert log.waterfall("1").request.duration_seconds == 0.1
    assert [log.waterfall(name) for name in ("r-9", "4", "0", "1" * 30, "²")] == [None] * 5


def test_the_oldest_go_when_there_are_too_many_and_totals_stay(log):
    for number in range(1, 8):
        log.add(rows(finished(number)), 0)
    body = log.document(after=0, limit=100)
    assert numbers(body) == [4, 5, 6, 7]
    assert body.totals["finished"] == 7


def test_a_refused_request_is_counted_apart(log):
    log.add(rows(finished(1), finished(2, outcome=3)), 1)
    assert log.document(0, 9).totals == {"started": 3, "finished": 1, "open": 1, "refused": 1}
