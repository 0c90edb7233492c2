# SPDX-License-Identifier: Apache-2.0
"""First and further tokens by modality, what made them, and their columns."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.config.settings import FrameConfig
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.request_timings import FRESH_MAX, RequestTimings
from hotstage.frame.token_latency import PARTS_MAX, fill_token_latency
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.timeline import PINNED

START = 1000 * SECOND
IMAGE = Entity(EntityKind.modality, modality="image")


def ended(number, *, encode_ms=0, output=11):
    """Waits 10 ms, is encoded, prefilled for 20 ms, decoded for 100 ms from 5 ms after that."""
    request = KernelRequest(number, at_ns=START)
    at = START + 10 * MS
    if encode_ms:
        request.begin(Stage.vision_encode, at, modality=Modality.image)
        at += encode_ms * MS
        request.end(Stage.vision_encode, at)
    request.begin(Stage.llm_prefill, at).end(Stage.llm_prefill, at + 20 * MS)
    request.begin(Stage.llm_decode, at + 25 * MS).end(Stage.llm_decode, at + 125 * MS)
    return request.finished(at + 125 * MS, 0, output)


def timings(*rows):
    found = RequestTimings(FrameConfig())
    found.keep(np.array(list(rows), FINISHED_DTYPE))
    return found


def test_a_modality_tells_its_first_tokens_and_what_made_them_late():
    rows = [ended(n, encode_ms=65) for n in range(20)] + [ended(100 + n) for n in range(4)]
    table = timings(*rows).latency(START + SECOND)
    image, text = table.modalities[1], table.modalities[0]
    assert (image.modality, text.modality) == ("image", "text")
    assert (image.requests, image.ttft_samples, image.ttft_bases) == (20, 20, {"decode_begin": 20})
    assert image.ttft_p50_seconds == image.ttft_p95_seconds == pytest.approx(0.1)
    assert image.itl_p95_seconds == pytest.approx(0.01)
    assert image.slowest == "vision_encode"
    assert [(part.name, part.kind, part.source, part.count) for part in image.parts] == [
        ("vision_encode", "stage", "mark", 20),
        ("llm_prefill", "stage", "mark", 20),
        ("queue", "wait", "gap", 20),
        ("delivery", "wait", "gap", 20),
    ]
    assert [part.share for part in image.parts] == pytest.approx([0.65, 0.2, 0.1, 0.05])
    assert image.parts[0].mean_seconds == pytest.approx(0.065)
    assert image.parts[0].p95_seconds == pytest.approx(0.065)
    assert (text.ttft_samples, text.ttft_p95_seconds) == (4, None)
    assert text.ttft_mean_seconds == pytest.approx(0.035)
    assert (table.total.modality, table.total.ttft_samples) == ("all", 24)


@pytest.mark.parametrize("has_other", [False, True])
def test_the_parts_add_up_however_many_own_stages_there_are(has_other):
    rows, names = [], {}
    for n in range(60):
        row = ended(n, encode_ms=10)
        slot = row["stages"][PINNED]
        row["own_stages"], row["tgid"] = 32 + n % 30, 100 + n // 30
        names[100 + n // 30, 32 + n % 30] = f"own_{n}"
        slot["began_ns"], slot["total_ns"], slot["count"] = START, (n + 1) * MS // 10, 1
        if has_other and n == 7:
            slot = row["stages"][Stage.other]
            slot["began_ns"], slot["total_ns"], slot["count"] = START + 7 * MS, 2 * MS, 1
        rows.append(row)
    found = RequestTimings(FrameConfig(), own_names=lambda: names)
    found.keep(np.array(rows, FINISHED_DTYPE))
    parts = found.latency(START + SECOND).total.parts
    shown = [part.name for part in parts]
    assert len(shown) == len(set(shown)) == PARTS_MAX
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert "own_59" in shown
    (other,) = (part for part in parts if part.name == "other")
    assert other.count == 60 - sum(name.startswith("own_") for name in shown)


def test_columns_are_of_the_host_and_of_each_modality():
    cells = {}
    rows = [ended(n, encode_ms=n + 1) for n in range(20)]
    fill_token_latency(timings(*rows, ended(99)).tokens(START + SECOND), 20, cells)
    assert cells[IMAGE]["ttft_samples"] == 20
    assert cells[IMAGE]["ttft_p50_seconds"] == pytest.approx(0.045)
    assert cells[IMAGE]["ttft_p95_seconds"] == pytest.approx(0.054)
    assert cells[IMAGE]["itl_p50_seconds"] == pytest.approx(0.01)
    assert cells[HOST]["ttft_samples"] == 21
    text = cells[Entity(EntityKind.modality, modality="text")]
    assert text["ttft_samples"] == 1
    assert math.isnan(text["ttft_p95_seconds"])


def test_requests_without_tokens_make_no_columns():
    cells = {}
    request = KernelRequest(1, at_ns=START).begin(Stage.tokenize, START).end(Stage.tokenize, START + MS)
    fill_token_latency(timings(request.finished(START + MS)).tokens(START + SECOND), 20, cells)
    assert cells == {}


def test_one_token_has_a_first_and_no_time_between():
    cells = {}
    fill_token_latency(timings(ended(1, output=1)).tokens(START + SECOND), 1, cells)
    assert cells[HOST]["ttft_p50_seconds"] == pytest.approx(0.035)
    assert "itl_p50_seconds" not in cells[HOST]


def test_what_was_kept_while_nobody_asked_is_reduced_by_the_tick_and_counted_once():
    found = RequestTimings(FrameConfig())
    rows = np.array([ended(1)], FINISHED_DTYPE)
    for _ in range(FRESH_MAX + 3):
        found.keep(rows)
    assert len(found.tokens(START + SECOND)) == FRESH_MAX + 3
    assert found.latency(START + SECOND).total.requests == FRESH_MAX + 3


def test_the_tick_does_not_wait_for_a_reader_and_loses_nothing():
    found = timings(ended(1))
    assert len(found.tokens(START + SECOND)) == 1
    found._lock.acquire()
    try:
        found.keep(np.array([ended(2)] * FRESH_MAX, FINISHED_DTYPE))
        told = []
        tick = threading.Thread(target=lambda: told.append(len(found.tokens(START + SECOND))))
        tick.start()
        tick.join(5)
        assert told == [1], "the tick waited for the reader's lock"
    finally:
        found._lock.release()
    assert len(found.tokens(START + SECOND)) == 1 + FRESH_MAX
