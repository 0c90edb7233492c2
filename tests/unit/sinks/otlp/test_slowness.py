# SPDX-License-Identifier: Apache-2.0
"""Which requests were slow among their like."""

from __future__ import annotations

import numpy as np
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.sinks.otlp.slowness import KINDS_MAX, SAMPLES_MIN, Slowness

START = 1_000 * SECOND
ENCODERS = {Modality.image: Stage.vision_encode, Modality.audio: Stage.audio_encode}


def rows(*took_ms, endpoint="/v1/chat", modality=Modality.image):
    made = []
    for took in took_ms:
        request = KernelRequest(1, at_ns=START, endpoint=endpoint)
        if modality in ENCODERS:
            request.begin(ENCODERS[modality], START, modality=modality).end(ENCODERS[modality], START + MS)
        made.append(request.finished(START + took * MS))
    return np.array(made, FINISHED_DTYPE)


def test_nobody_is_slow_before_enough_are_known():
    assert Slowness().judge(rows(*[10] * (SAMPLES_MIN - 1), 10_000)) == [False] * SAMPLES_MIN


def test_slow_is_beyond_the_p95_and_twice_the_median():
    judged = Slowness()
    judged.judge(rows(*[100] * 60))
    assert judged.judge(rows(101, 199, 201, 5_000)) == [False, False, True, True]


def test_where_one_in_ten_is_long_long_is_not_slow():
    judged = Slowness()
    judged.judge(rows(*([100] * 9 + [900]) * 10))
    assert judged.judge(rows(800, 950)) == [False, True]


def test_a_modality_is_measured_by_its_own_like():
    judged = Slowness()
    judged.judge(rows(*[100] * 64))
    judged.judge(rows(*[4_000] * 64, modality=Modality.audio))
    judged.judge(rows(*[4_000] * 64, endpoint="/v1/video"))
    assert judged.judge(rows(4_100)) == [True]
    assert judged.judge(rows(4_100, modality=Modality.audio)) == [False]
    assert judged.judge(rows(4_100, endpoint="/v1/video")) == [False]


def test_what_becomes_usual_is_slow_no_more():
    judged = Slowness()
    judged.judge(rows(*[100] * 64))
    flags = judged.judge(rows(*[1_000] * 256))
    assert flags[0] and not flags[-1]


def test_endpoints_are_bounded_and_the_others_share():
    judged = Slowness()
    for number in range(KINDS_MAX + 50):
        judged.judge(rows(100, endpoint=f"/{number}"))
    judged.judge(rows(*[100] * 32, endpoint="/another"))
    assert len(judged._kinds) <= KINDS_MAX + len(Modality)
    assert judged.judge(rows(9_000, endpoint="/yet-another")) == [True]


def test_no_request_is_no_answer():
    assert Slowness().judge(np.zeros(0, FINISHED_DTYPE)) == []
