# SPDX-License-Identifier: Apache-2.0
"""The class of a finished request: which modalities it brought (its fingerprint) and how much of them. Pure.

What a record says is somebody else's word: whatever it holds, the class is one of `CLASSES`, and token counts
are sums of 32-bit numbers in 64-bit ones. Rows in, arrays out; no loop over rows.

Fingerprint: `vlm` saw images, `audio` sound, `video` moving pictures, `vlm+audio` and the like several, `llm`
none of these but text. The language model behind an encoder is implied, so the seed's LLM+VLM is `vlm`. A
medium is present when a stage or a mark named it or when its encoder ran. A record that names no modality but
went through a stage of the language model, or one of the server's own, is `llm`: no encoder ran, and the list
of requests calls it text. `unknown` says only `mixed`, or nothing at all.

Size: by input tokens, text and media together, each class up to and including its edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.stage import OWN_STAGES, Modality, Stage

Rows = NDArray[Any]
Counts = NDArray[np.int64]

Fingerprint = Literal[
    "llm", "vlm", "audio", "vlm+audio", "video", "vlm+video", "audio+video", "vlm+audio+video", "unknown"
]
FINGERPRINTS: tuple[Fingerprint, ...] = (
    "llm",
    "vlm",
    "audio",
    "vlm+audio",
    "video",
    "vlm+video",
    "audio+video",
    "vlm+audio+video",
    "unknown",
)
"""The place of the first eight is a sum of bits: image 1, audio 2, video 4."""

SIZE_EDGES = (1 << 10, 8 << 10, 32 << 10, 128 << 10)
"""Input tokens; a request of exactly an edge belongs to the class below it."""

SIZES = ("up_to_1K", "up_to_8K", "up_to_32K", "up_to_128K", "over_128K", "unknown")
"""K = 1,024 tokens; `unknown` where no stage said how many."""

CLASSES = len(FINGERPRINTS) * len(SIZES)

MEDIA = (Modality.image, Modality.audio, Modality.video)

MODALITIES_OF: dict[Fingerprint, tuple[Modality, ...]] = {
    name: tuple(medium for place, medium in enumerate(MEDIA) if bits >> place & 1) or (Modality.text,)
    for bits, name in enumerate(FINGERPRINTS[:-1])
} | {"unknown": ()}
"""Whose weight and baseline speak for a class."""

_UNKNOWN = len(FINGERPRINTS) - 1
_ENCODERS = (Stage.vision_encode, Stage.audio_encode, Stage.video_encode)  # in the order of MEDIA
_MEDIA_STAGES = (Stage.media_fetch, Stage.media_decode, Stage.preprocess, Stage.cross_modal_align)
_ENCODER_SLOTS, _MEDIA_SLOTS = np.array(_ENCODERS, np.intp), np.array(_MEDIA_STAGES, np.intp)
_MEDIA_CODES = np.array(MEDIA, np.uint8)[:, None]
_TEXT_BITS = np.uint64(
    sum(
        1 << stage
        for stage in (
            *(Stage.tokenize, Stage.llm_prefill, Stage.llm_decode, Stage.sample, Stage.detokenize),
            *OWN_STAGES,
        )
    )
)
"""Stages that make a request one of text where nothing names a medium."""


@dataclass(frozen=True, slots=True)
class Classified:
    """(R,) each, in the order of the rows; 0 tokens means nobody said."""

    code: NDArray[np.int64]
    """See `fingerprint_of` and `size_of`; below `CLASSES`."""
    text_tokens: Counts
    """Of the input: what is not media."""
    media_tokens: Counts
    """(R, 3) in the order of `MEDIA`."""
    output_tokens: Counts


def fingerprint_of(code: int) -> Fingerprint:
    return FINGERPRINTS[code // len(SIZES)]


def size_of(code: int) -> str:
    return SIZES[code % len(SIZES)]


@dataclass(frozen=True, slots=True)
class InputTokens:
    """(R,) each, in the order of the rows; 0 means nobody said."""

    whole: Counts
    media: Counts
    """(R, 3) in the order of `MEDIA`, a part of `whole`."""
    is_used: NDArray[np.bool_]
    """(R, STAGE_SLOTS): which slots say anything."""
    slots: Counts
    """(R, STAGE_SLOTS): tokens of each."""


def input_tokens(rows: Rows) -> InputTokens:
    """REQUEST_DTYPE or FINISHED_DTYPE (R,) → tokens of their input.

    Stages of one modality pass the same input on: the largest count among them is the input, not the sum. The
    prefill sees all of it, or, with a cached prefix, less; so the input is the largest of what prefill,
    tokenizer and media stages say, and their sum where no prefill says anything.
    """
    slots = rows["stages"]
    is_used = (slots["count"] > 0) | (slots["open"] > 0)
    tokens = np.where(is_used, slots["tokens"], 0).astype(np.int64)
    # Only these stages prepare input.
    modality, prepared = slots["modality"][:, _MEDIA_SLOTS], tokens[:, _MEDIA_SLOTS]
    media = np.maximum(
        np.where(modality[:, None, :] == _MEDIA_CODES, prepared[:, None, :], 0).max(axis=2),
        tokens[:, _ENCODER_SLOTS],
    )
    words = np.maximum(
        tokens[:, Stage.tokenize], np.where(modality == Modality.text, prepared, 0).max(axis=1)
    )
    prefill, media_sum = tokens[:, Stage.llm_prefill], media.sum(axis=1)
    whole = words + media_sum
    np.copyto(whole, np.maximum(np.maximum(prefill, words), media_sum), where=prefill > 0)
    return InputTokens(whole, media, is_used, tokens)


def classify(rows: Rows) -> Classified:
    """FINISHED_DTYPE (R,) → their classes."""
    found = input_tokens(rows)
    tokens, taken = found.slots, found.whole
    modality = rows["stages"]["modality"]
    words, masks = rows["modality_words"], rows["stage_mask"] | rows["open_mask"]

    def says(wanted: Modality) -> NDArray[np.bool_]:
        said: NDArray[np.bool_] = (found.is_used & (modality == wanted)).any(axis=1)
        said |= words[:, wanted] != 0
        return said

    bits = np.zeros(len(rows), np.int64)
    for place, (medium, encoder) in enumerate(zip(MEDIA, _ENCODERS, strict=True)):
        has_run = masks >> np.uint64(encoder) & np.uint64(1) != 0
        bits |= (says(medium) | has_run).astype(np.int64) << place
    is_text = says(Modality.text) | ((masks & _TEXT_BITS != 0) & ~says(Modality.mixed))
    fingerprint = np.where((bits == 0) & ~is_text, _UNKNOWN, bits)
    size = np.where(taken == 0, len(SIZES) - 1, np.searchsorted(SIZE_EDGES, taken, side="left"))
    told = rows["output_tokens"].astype(np.int64)
    return Classified(
        code=fingerprint * len(SIZES) + size,
        text_tokens=taken - found.media.sum(axis=1),
        media_tokens=found.media,
        output_tokens=np.where(told > 0, told, tokens[:, Stage.llm_decode]),
    )
