# SPDX-License-Identifier: Apache-2.0
"""Whatever a record says, its class is one of the documented ones, and says what the request brought."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernel_rows import KernelRequest, Modality, Stage

from hotstage.config.classes import FingerprintName
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.request_class import (
    CLASSES,
    FINGERPRINTS,
    MODALITIES_OF,
    SIZES,
    Fingerprint,
    classify,
    fingerprint_of,
    size_of,
)
from hotstage.stages.spans import modality_of_masks
from hotstage.stages.stage import modality_name

K = 1024
U32 = st.integers(0, 2**32 - 1)


def record(*spans, output=0):
    """A finished request that went through (stage, modality, tokens)."""
    request = KernelRequest(1, at_ns=10)
    for stage, modality, tokens in spans:
        request.begin(stage, 20, modality=modality, tokens=tokens).end(stage, 30)
    return request.finished(40, output_tokens=output)


def classes(*rows):
    return classify(np.array(list(rows), FINISHED_DTYPE))


def fingerprint(*spans):
    return fingerprint_of(int(classes(record(*spans)).code[0]))


IMAGE = (Stage.vision_encode, Modality.image, 576)
SOUND = (Stage.audio_encode, Modality.audio, 1500)
VIDEO = (Stage.video_encode, Modality.video, 4096)
PROMPT = (Stage.tokenize, Modality.text, 60)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([PROMPT], "llm"),
        ([PROMPT, IMAGE], "vlm"),
        ([SOUND], "audio"),
        ([VIDEO], "video"),
        ([IMAGE, SOUND], "vlm+audio"),
        ([IMAGE, VIDEO], "vlm+video"),
        ([SOUND, VIDEO, PROMPT], "audio+video"),
        ([IMAGE, SOUND, VIDEO], "vlm+audio+video"),
        ([], "unknown"),
        ([(Stage.gateway, Modality.unknown, 0)], "unknown"),
        ([(Stage.llm_decode, Modality.mixed, 9)], "unknown"),
        ([(Stage.llm_prefill, Modality.unknown, 9)], "llm"),
        ([(Stage.preprocess, Modality.image, 0)], "vlm"),
        ([(Stage.audio_encode, Modality.unknown, 7)], "audio"),
        ([(Stage.preprocess, 200, 7)], "unknown"),
    ],
)
def test_the_fingerprint_is_what_the_request_went_through(spans, expected):
    assert fingerprint(*spans) == expected


@pytest.mark.parametrize(
    ("modality", "expected", "listed"),
    [(Modality.unknown, "llm", "text"), (Modality.image, "vlm", "text"), (Modality.mixed, "unknown", "text")],
)
def test_a_request_with_nothing_but_a_stage_of_its_own_is_text_as_in_the_list(modality, expected, listed):
    """Where that stage names a medium it counts; the list tells by encoders alone."""
    row = record()
    row["stages"][18]["count"], row["stages"][18]["modality"] = 1, modality
    row["own_stages"], row["stage_mask"] = 37, np.uint64(1 << 37)
    assert fingerprint_of(int(classes(row).code[0])) == expected
    assert modality_name(int(modality_of_masks(np.array([row["stage_mask"]]))[0])) == listed


def test_a_medium_that_only_a_mark_named_counts():
    row = record(PROMPT)
    row["modality_words"][Modality.audio] = 1
    assert fingerprint_of(int(classes(row).code[0])) == "audio"


@pytest.mark.parametrize(
    ("tokens", "size"),
    [
        (0, "unknown"),
        (1, "up_to_1K"),
        (K, "up_to_1K"),
        (K + 1, "up_to_8K"),
        (32 * K, "up_to_32K"),
        (128 * K, "up_to_128K"),
        (128 * K + 1, "over_128K"),
        (2**32 - 1, "over_128K"),
    ],
)
def test_an_edge_belongs_to_the_size_below_it(tokens, size):
    assert size_of(int(classes(record((Stage.llm_prefill, Modality.text, tokens))).code[0])) == size


def test_stages_of_one_medium_pass_it_on_and_the_prefill_sees_all_of_it():
    found = classes(
        record(
            (Stage.media_decode, Modality.image, 500),
            (Stage.vision_encode, Modality.image, 576),
            (Stage.tokenize, Modality.image, 60),
            (Stage.llm_prefill, Modality.image, 640),
            (Stage.llm_decode, Modality.image, 99),
            output=12,
        ),
        record((Stage.vision_encode, Modality.image, 576), PROMPT),
        record((Stage.vision_encode, Modality.image, 576), (Stage.llm_prefill, Modality.image, 64)),
        record((Stage.llm_decode, Modality.text, 33)),
    )
    assert found.media_tokens[:, 0].tolist() == [576, 576, 576, 0]
    assert found.text_tokens.tolist() == [64, 60, 0, 0]
    assert found.output_tokens.tolist() == [12, 0, 0, 33]


def test_no_rows_are_no_classes():
    assert len(classes().code) == 0


@settings(deadline=None)
@given(
    slots=st.lists(
        st.tuples(st.integers(0, 19), U32, st.integers(0, 65535), st.integers(0, 255), st.integers(0, 255)),
        max_size=20,
    ),
    words=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6),
    masks=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    output=U32,
)
def test_whatever_a_record_holds_its_class_is_one_of_the_documented_ones(slots, words, masks, output):
    row = np.zeros(1, FINISHED_DTYPE)[0]
    for stage, tokens, count, modality, is_open in slots:
        slot = row["stages"][stage]
        slot["tokens"], slot["count"], slot["modality"], slot["open"] = tokens, count, modality, is_open
    row["modality_words"], row["output_tokens"] = words, output
    row["stage_mask"], row["open_mask"] = masks
    found = classes(row, record(PROMPT))
    code = int(found.code[0])
    assert 0 <= code < CLASSES
    media, text, told = found.media_tokens[0].tolist(), int(found.text_tokens[0]), int(found.output_tokens[0])
    assert min(*media, text, told) >= 0
    assert text + sum(media) + told <= 6 * 2**32
    has_size = size_of(code) != "unknown"
    assert has_size == (text + sum(media) > 0)
    # A neighbour changes nothing.
    assert found.code.tolist() == [code, int(classes(record(PROMPT)).code[0])]
    assert classes(record(PROMPT), row).code.tolist() == found.code.tolist()[::-1]


@given(st.sets(st.sampled_from([IMAGE, SOUND, VIDEO]), min_size=1), st.booleans())
def test_a_fingerprint_names_exactly_the_media_that_were_there(media, with_text):
    named = fingerprint(*media, *([PROMPT] if with_text else []))
    assert {medium for _, medium, _ in media} == set(MODALITIES_OF[named])


def test_names_are_the_same_everywhere():
    assert len(FINGERPRINTS) * len(SIZES) == CLASSES
    assert get_args(Fingerprint) == FINGERPRINTS == (*get_args(FingerprintName), "unknown")
    assert set(MODALITIES_OF) == set(FINGERPRINTS)
