# SPDX-License-Identifier: Apache-2.0
"""Finished requests by number, bounded, with the time of each stage."""

from __future__ import annotations

import numpy as np
import pytest
from support.kernel_rows import MS, KernelRequest

from hotstage.api.requests import RequestLog
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.stage import Modality, Stage


def finished(number, outcome=0):
    request = KernelRequest(number, at_ns=100 * MS)
    request.begin(Stage.vision_encode, 110 * MS, modality=Modality.image, tokens=64)
    request.end(Stage.vision_encode, 140 * MS)
    return request.finished(200 * MS, outcome=outcome, output_tokens=17)


def rows(*finished_rows):
    return np.array(list(finished_rows), FINISHED_DTYPE)


@pytest.fixture
def log(clock):
    return RequestLog(clock, capacity=4)


def test_a_request_comes_with_its_stages_and_when_it_ended(log, clock):
    log.add(rows(finished(1)), open_requests=3)
    body = log.document(after=0, limit=10)
    (row,) = body["requests"]
    assert (row["seq"], row["id"], row["endpoint"], row["model"]) == (1, "r-1", "/v1/chat", "vlm")
    assert (row["outcome"], row["output_tokens"], row["duration_seconds"]) == ("ok", 17, 0.1)
    assert row["ended_at_ns"] == clock.WALL_OFFSET_NS + 200 * MS
    assert row["stages"] == [
        {"stage": "vision_encode", "modality": "image", "seconds": 0.03, "count": 1, "tokens": 64}
    ]
    assert body["totals"] == {"started": 4, "finished": 1, "open": 3, "refused": 0}


def test_a_request_comes_with_the_digest_of_its_input_or_none(log):
    told, untold = finished(1), finished(2)
    told["input_digest"] = 0xABC
    log.add(rows(told, untold), 0)
    assert [row["input_digest"] for row in log.document(0, 10)["requests"]] == ["0000000000000abc", None]


def test_a_reader_goes_on_from_where_it_was(log):
    log.add(rows(finished(1), finished(2)), 0)
    log.add(rows(finished(3)), 0)
    first = log.document(after=0, limit=2)
    assert ([row["seq"] for row in first["requests"]], first["next"]) == ([1, 2], 2)
    second = log.document(after=first["next"], limit=2)
    assert ([row["id"] for row in second["requests"]], second["next"]) == (["r-3"], 3)
    assert log.document(after=3, limit=2) == {"requests": [], "next": 3, "totals": first["totals"]}


def test_the_oldest_go_when_there_are_too_many_and_totals_stay(log):
    for number in range(1, 8):
        log.add(rows(finished(number)), 0)
    body = log.document(after=0, limit=100)
    assert [row["seq"] for row in body["requests"]] == [4, 5, 6, 7]
    assert body["totals"]["finished"] == 7


def test_a_refused_request_is_counted_apart(log):
    log.add(rows(finished(1), finished(2, outcome=3)), 1)
    assert log.document(0, 9)["totals"] == {"started": 3, "finished": 1, "open": 1, "refused": 1}
