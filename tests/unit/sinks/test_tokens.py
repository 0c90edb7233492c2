# SPDX-License-Identifier: Apache-2.0
"""First and further tokens as metrics: parts of a modality add up to its mean; no series for the unknown."""

from __future__ import annotations

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.config.settings import FrameConfig
from hotstage.frame.request_timings import RequestTimings
from hotstage.frame.token_latency import no_latency
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.sinks import token_metrics as metrics
from hotstage.sinks.tokens import token_children
from hotstage.stages.timeline import PINNED

START = 1000 * SECOND


def ended(number, *, encode_ms=0):
    """Waits 10 ms, is encoded, prefilled for 20 ms, decoded for 100 ms from 5 ms after that: 11 tokens."""
    request, at = KernelRequest(number, at_ns=START), START + 10 * MS
    if encode_ms:
        request.begin(Stage.vision_encode, at, modality=Modality.image)
        at += encode_ms * MS
        request.end(Stage.vision_encode, at)
    request.begin(Stage.llm_prefill, at).end(Stage.llm_prefill, at + 20 * MS)
    request.begin(Stage.llm_decode, at + 25 * MS).end(Stage.llm_decode, at + 125 * MS)
    return request.finished(at + 125 * MS, 0, 11)


@pytest.fixture
def children():
    """Twenty images, and four texts: too few for a quantile."""
    found = RequestTimings(FrameConfig())
    rows = [ended(n, encode_ms=65) for n in range(20)] + [ended(100 + n) for n in range(4)]
    found.keep(np.array(rows, FINISHED_DTYPE))
    return {metric: dict(each) for metric, each in token_children(found.latency(START + SECOND)).items()}


def test_quantiles_are_there_where_they_are_known(children):
    assert children[metrics.TTFT_P50] == children[metrics.TTFT_P95] == pytest.approx({("image",): 0.1})
    assert children[metrics.ITL_P50] == children[metrics.ITL_P95] == pytest.approx({("image",): 0.01})


def test_the_parts_of_a_modality_are_its_mean_time_to_first_token_largest_first(children):
    parts = children[metrics.TTFT_PART]
    assert next(iter(parts)) == ("image", "vision_encode")
    assert {part: value for (modality, part), value in parts.items() if modality == "image"} == pytest.approx(
        {"vision_encode": 0.065, "llm_prefill": 0.020, "queue": 0.010, "delivery": 0.005}
    )
    text = [value for (modality, _), value in parts.items() if modality == "text"]
    assert sum(text) == pytest.approx(0.035)


def test_one_name_is_one_series_and_the_parts_still_add_up():
    rows = []
    for n in range(20):
        request = KernelRequest(n, at_ns=START)  # waits, is in the server's queue, and waits again
        request.begin(Stage.queue, START + 5 * MS).end(Stage.queue, START + 12 * MS)
        request.begin(Stage.llm_prefill, START + 20 * MS).end(Stage.llm_prefill, START + 40 * MS)
        request.begin(Stage.llm_decode, START + 40 * MS).end(Stage.llm_decode, START + 90 * MS)
        row = request.finished(START + 90 * MS, 0, 11)
        row["own_stages"], slot = 40, row["stages"][PINNED]
        slot["began_ns"], slot["total_ns"], slot["count"] = START + 13 * MS, 3 * MS, 1
        rows.append(row)
    found = RequestTimings(FrameConfig(), own_names=lambda: {(100, 40): "llm_prefill"})
    found.keep(np.array(rows, FINISHED_DTYPE))
    latency = found.latency(START + SECOND)
    told = [(part.name, part.source) for part in latency.total.parts]
    assert {("queue", "mark"), ("queue", "gap")} <= set(told)
    assert len(told) == len(set(told))
    parts = token_children(latency)[metrics.TTFT_PART]
    assert len(parts) == len(dict(parts))
    assert sum(dict(parts).values()) == pytest.approx(latency.total.ttft_mean_seconds)
    assert dict(parts)["text", "llm_prefill"] == pytest.approx(0.023)


def test_a_host_without_requests_has_no_series():
    assert not any(token_children(no_latency(START)).values())
