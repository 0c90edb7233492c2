# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from support.pulses import SECOND, process, pulse

from hotstage.breaker.scopes import scopes_of
from hotstage.detect.finding import Severity
from hotstage.detect.rules.shared_stream import FORGET_NS, K, N, SharedStream
from hotstage.stages.stage import Modality, Stage
from hotstage.stages.stream_looks import StreamLook

TICK = SECOND // 10
START = 1000 * SECOND
SHARED = StreamLook(100, 0x7F10, Stage.vision_encode, Modality.image, Stage.llm_decode, is_marked=True)
APART = replace(SHARED, stream=None)


def observe(detector, tick, *looks, **others):
    return detector.observe_pulse(
        pulse(START + tick * TICK, processes=[process()], stream_looks=looks, **others)
    )


def test_it_fires_once_k_of_the_last_moments_show_it_and_says_who_and_where():
    detector = SharedStream()
    found = [observe(detector, tick, SHARED) for tick in range(K)]
    assert not any(found[: K - 1])
    (finding,) = found[-1]
    assert (finding.kind, finding.severity, finding.is_hard) == ("shared_stream", Severity.info, False)
    assert (finding.entity.stage, finding.entity.modality) == ("vision_encode", "image")
    assert (finding.entity.instance, finding.entity.pid) == ("i-0", 100)
    assert "vision_encode (image) and llm_decode on stream 0x7f10" in finding.summary
    assert finding.labels["beside"] == "llm_decode"


def test_moments_in_which_only_one_is_at_work_are_none():
    detector = SharedStream()
    for tick in range(0, 10 * K, 10):
        observe(detector, tick, SHARED)
    assert observe(detector, 10 * K), "they neither add nor take away"


def test_streams_apart_never_fire_and_a_few_chances_neither():
    detector = SharedStream()
    assert not any(observe(detector, tick, APART) for tick in range(50))
    assert not any(observe(detector, 100 + tick, SHARED if tick % 3 else APART) for tick in range(K))


def test_it_ends_when_they_part_and_when_nothing_is_seen_for_long():
    detector = SharedStream()
    for tick in range(N):
        observe(detector, tick, SHARED)
    ended = [bool(observe(detector, N + tick, APART)) for tick in range(N)]
    assert ended[0] and not ended[-1]
    for tick in range(N):
        observe(detector, 100 + tick, SHARED)
    assert observe(detector, 100 + N)
    assert not observe(detector, 100 + N + FORGET_NS // TICK)


def test_a_moment_with_losses_says_nothing():
    detector = SharedStream()
    stale = frozenset({"lost_threads"})
    assert not any(observe(detector, tick, SHARED, stale=stale) for tick in range(3 * N))


def test_its_window_moves_no_breaker(make):
    detector = SharedStream()
    finding = [observe(detector, tick, SHARED) for tick in range(K)][-1][0]
    window = make.window(kind=finding.kind, entity=finding.entity, labels=dict(finding.labels))
    assert scopes_of(window, {"stage", "instance", "gpu", "host", "endpoint", "modality"}) == ()
