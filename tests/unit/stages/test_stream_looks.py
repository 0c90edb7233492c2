# SPDX-License-Identifier: Apache-2.0
"""Two threads at work at one moment share a stream, or do not; what one thread does in turn is no sharing."""

from __future__ import annotations

import numpy as np
import pytest

from hotstage.probes.maps.layout import NO_STAGE, THREAD_DTYPE
from hotstage.stages.stage import Modality, Stage
from hotstage.stages.stream_looks import PER_THREAD, looks


def thread(stage, stream, *, tid=1, pid=100, device=0, launched=3, inferred=NO_STAGE):
    row = np.zeros(1, THREAD_DTYPE)[0]
    row["tid"], row["tgid"], row["device"], row["launch_stream"] = tid, pid, device, stream
    row["stage"], row["inferred_stage"], row["modality"] = stage, inferred, Modality.image
    row["launch_total"], row["streamed_launch_total"] = 10 + launched, 10
    return row


def seen(*rows):
    return looks(np.array(list(rows), THREAD_DTYPE))


def test_an_encoder_beside_the_language_model_on_one_stream_is_told_with_both():
    (look,) = seen(thread(Stage.vision_encode, 7), thread(Stage.llm_decode, 7, tid=2))
    assert (look.pid, look.stream, look.encoder, look.language) == (
        100,
        7,
        Stage.vision_encode,
        Stage.llm_decode,
    )
    assert look.is_marked


def test_the_default_stream_is_a_stream_as_any_other():
    (look,) = seen(thread(Stage.video_encode, 0), thread(Stage.llm_prefill, 0, tid=2))
    assert look.stream == 0


@pytest.mark.parametrize(
    ("encoder", "language"),
    [
        (thread(Stage.vision_encode, 7), thread(Stage.llm_decode, 9, tid=2)),
        (thread(Stage.vision_encode, PER_THREAD), thread(Stage.llm_decode, PER_THREAD, tid=2)),
    ],
)
def test_a_stream_each_is_a_moment_without_sharing(encoder, language):
    (look,) = seen(encoder, language)
    assert look.stream is None


def test_of_several_threads_one_pair_is_enough():
    (look,) = seen(
        thread(Stage.vision_encode, 3),
        thread(Stage.video_encode, 7, tid=3),
        thread(Stage.llm_decode, 7, tid=2),
    )
    assert (look.stream, look.encoder) == (7, Stage.video_encode)


@pytest.mark.parametrize(
    "other",
    [
        thread(Stage.llm_decode, 7, tid=2, pid=200),
        thread(Stage.llm_decode, 7, tid=2, device=1),
        thread(Stage.llm_decode, 7, tid=2, launched=0),
        thread(Stage.audio_encode, 7, tid=2),
        thread(NO_STAGE, 7, tid=2),
    ],
    ids=["another process", "another GPU", "nothing launched yet", "no language model", "no stage"],
)
def test_where_only_one_is_at_work_there_is_nothing_to_judge(other):
    assert seen(thread(Stage.vision_encode, 7), other) == ()
    assert seen() == ()


def test_what_a_rule_says_counts_and_is_told_apart():
    (look,) = seen(thread(Stage.vision_encode, 7), thread(NO_STAGE, 7, tid=2, inferred=Stage.llm_decode))
    assert (look.stream, look.is_marked) == (7, False)


def test_every_process_is_told_once_and_by_a_pair_that_shares_where_there_is_one():
    rows = [
        thread(stage, stream, tid=10 * pid + place, pid=pid)
        for pid, shared in ((1, 50), (2, 7))
        for place, (stage, stream) in enumerate(
            [(Stage.vision_encode, stream) for stream in (7, 8, 9)]
            + [(Stage.llm_decode, stream) for stream in (40, shared, 41)]
        )
    ]
    seen_of = {look.pid: look for look in seen(*rows)}
    assert len(seen_of) == 2
    assert (seen_of[1].stream, seen_of[2].stream) == (None, 7)


def test_threads_of_two_devices_are_no_pair():
    encoder = thread(Stage.vision_encode, 7)
    assert seen(encoder, thread(Stage.llm_decode, 7, tid=2, device=1)) == ()
