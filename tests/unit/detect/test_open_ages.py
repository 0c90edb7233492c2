# SPDX-License-Identifier: Apache-2.0
"""What is left out is never more than it is allowed, judged one by one; and nearly all is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hotstage.detect.baseline import Usual
from hotstage.detect.open_ages import FEW, OpenAges
from hotstage.detect.statistics.work_size import WorkSize
from hotstage.stages.spans import SPAN_DTYPE

NOW, SECOND = 10**16 + 7, 1_000_000_000
SIZES = (
    WorkSize(log_rate=-3.0, offset=math.inf, largest=math.inf, plain_high=-2.0),
    WorkSize(log_rate=-9.0, offset=0.0, largest=600.0, plain_high=-1.0),
    WorkSize(log_rate=-8.0, offset=40.0, largest=0.0, plain_high=0.5),
)
OFFSETS = ({}, {1: -0.7, 2: 0.4}, {2: 1.5})
LEVEL = 1.4


def usual_of(size, offsets):
    return Usual(size, offsets, scatter=0.2, exceed_ratio=0.0, seconds=0.1)


def streams_of(sizes):
    """The fourth stream is one of which nobody knows what is usual."""
    known = {
        (place, 1): (usual_of(*pair), LEVEL) for place, pair in enumerate(zip(sizes, OFFSETS, strict=True))
    }
    return {**known, (3, 1): (None, math.inf)}


def some_spans(count, seed=5):
    random = np.random.default_rng(seed)
    spans = np.zeros(count, SPAN_DTYPE)
    spans["request_hash"] = np.arange(count)
    spans["label"], spans["modality"] = random.integers(0, 5, count), 1
    spans["instance"] = random.integers(0, 4, count)
    spans["tokens"] = random.integers(0, 3, count) * random.integers(1, 3000, count)
    spans["began_ns"] = NOW - (random.exponential(0.5, count) * SECOND).astype(np.int64)
    return spans


def excess_of(span, streams):
    """As the detector judges one: log2 of its age ÷ what is usual for its size and instance."""
    usual, _ = streams.get((int(span["label"]), int(span["modality"])), (None, 0.0))
    if usual is None:
        return -math.inf
    log_seconds = math.log2((NOW - int(span["began_ns"])) / SECOND)
    offset = usual.instance_offsets.get(int(span["instance"]), 0.0)
    return usual.size.excess_of(log_seconds, int(span["tokens"])) - offset


@pytest.mark.parametrize("seed", range(8))
def test_whoever_has_more_than_allowed_is_among_them(seed):
    streams, spans = streams_of(SIZES), some_spans(800, seed)
    chosen = set(OpenAges().suspects(spans, NOW, streams)["request_hash"].tolist())
    too_old = {int(span["request_hash"]) for span in spans if excess_of(span, streams) > LEVEL}
    assert too_old <= chosen
    assert 0 < len(too_old) < 400


def test_where_no_instance_differs_as_a_rule_nobody_else_is():
    streams = {(label, 1): (usual_of(size, {}), LEVEL) for label, size in enumerate(SIZES)}
    spans = some_spans(800)
    too_old = [int(span["request_hash"]) for span in spans if excess_of(span, streams) > LEVEL]
    assert OpenAges().suspects(spans, NOW, streams)["request_hash"].tolist() == too_old


def test_a_stream_without_a_usual_duration_has_none():
    spans = some_spans(FEW + 1)
    assert len(OpenAges().suspects(spans, NOW, {(label, 1): (None, math.inf) for label in range(5)})) == 0


def test_a_limit_follows_what_is_usual_and_the_level():
    ages, spans = OpenAges(), some_spans(800)
    for level, size in ((LEVEL, SIZES[0]), (LEVEL + 1, SIZES[0]), (LEVEL, SIZES[2])):
        streams = {(label, 1): (usual_of(size, {}), level) for label in range(5)}
        too_old = [int(span["request_hash"]) for span in spans if excess_of(span, streams) > level]
        assert ages.suspects(spans, NOW, streams)["request_hash"].tolist() == too_old


def test_a_few_are_not_worth_a_look_at_all_of_them():
    spans = some_spans(FEW)
    assert OpenAges().suspects(spans, NOW, streams_of(SIZES)) is spans
