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


def test_a_host_without_requests_has_no_series():
    assert not any(token_children(no_latency(START)).values())
