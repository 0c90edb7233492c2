# SPDX-License-Identifier: Apache-2.0
"""The words of the pipeline: stages and modalities with pinned ids, shared with BPF and the marks library.

Standard library only. A released id never changes its meaning: it is stored in maps, files and metrics.
"""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """What a request is going through, in pipeline order; the id is also the bit in `stage_mask`."""

    gateway = 0
    media_fetch = 1
    media_decode = 2
    preprocess = 3
    tokenize = 4
    queue = 5
    model_load = 6
    lora_apply = 7
    vision_encode = 8
    audio_encode = 9
    video_encode = 10
    cross_modal_align = 11
    llm_prefill = 12
    llm_decode = 13
    kv_transfer = 14
    sample = 15
    detokenize = 16
    other = 17


class Modality(IntEnum):
    """What kind of input the work is for."""

    text = 0
    image = 1
    audio = 2
    video = 3
    mixed = 4
    unknown = 5


NO_STAGE = 255
"""The thread or call carries no stage: it is counted as unattributed."""

STAGE_SLOTS = 24
"""Stage slots a request holds in the kernel; pinned stages use the first `len(Stage)`, its own the others."""

OWN_STAGES = range(32, 64)
"""Ids of stages that a server made up itself; each process gives its own, so a name needs the pid."""

STAGE_IDS = 64
"""All ids are below; the id is also the bit in masks."""

WAITING_STAGES = frozenset({Stage.gateway, Stage.queue})
"""Stages whose duration is waiting for someone else: they grow with load, not with a fault of their own."""


# A tick asks hundreds of times: making an enum of a number costs ten times as much as a look at a table.
_STAGE_NAMES = {stage.value: stage.name for stage in Stage} | {NO_STAGE: "none"}
_MODALITY_NAMES = {modality.value: modality.name for modality in Modality}


def stage_name(stage_id: int) -> str:
    """The stage's name; `none` for `NO_STAGE`, `stage_<id>` for an id that no table knows."""
    return _STAGE_NAMES.get(stage_id) or f"stage_{stage_id}"


def modality_name(modality_id: int) -> str:
    """The modality's name; an id that no table knows is `unknown`."""
    return _MODALITY_NAMES.get(modality_id, Modality.unknown.name)
