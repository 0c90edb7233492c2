# SPDX-License-Identifier: Apache-2.0
"""Do vision and text share a stream? A fact about how a server is built, no alarm. Pure.

On one stream the work of an encoder and that of the language model wait for each other, whatever the GPU has
free (RULES k). A request of an image is prefilled on the language model's stream like any other: that is no
sharing; the encoder beside it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from hotstage.probes.maps.conflict import StreamUser
from hotstage.stages.labels import OwnNames, own_stage_name
from hotstage.stages.stage import STAGE_IDS, Stage, modality_name

LEAST_LAUNCHES = 16
"""On a stream before a modality counts as working there."""

_VISION = 1 << Stage.vision_encode | 1 << Stage.video_encode
_TEXT = 1 << Stage.llm_prefill | 1 << Stage.llm_decode | 1 << Stage.sample


class ModalityOnStream(TypedDict):
    """Launches of one modality on one stream; CLOCK_MONOTONIC."""

    launches: int
    first_ns: int
    last_ns: int
    stages: list[str]


class SharedStream(TypedDict):
    """One CUstream of one process (`stream` 0: the default one) that several modalities launch on."""

    pid: int
    stream: int
    modalities: Mapping[str, ModalityOnStream]
    vision_beside_text: bool
    """An encoder of images or videos and the language model both launch here."""
    since_ns: int
    """When the second of the modalities came."""


def shared_streams(users: Iterable[StreamUser], own_names: OwnNames) -> list[SharedStream]:
    """Streams of more than one modality, those of vision beside text first."""
    found = [shared for user in users if (shared := _shared(user, own_names)) is not None]
    return sorted(found, key=lambda each: (not each["vision_beside_text"], each["pid"], each["stream"]))


def _shared(user: StreamUser, own_names: OwnNames) -> SharedStream | None:
    here = [number for number, launches in enumerate(user.launches) if launches >= LEAST_LAUNCHES]
    named = [number for number in here if user.stage_masks[number]]
    if len(named) < 2:
        return None
    stages = 0
    for number in named:
        stages |= user.stage_masks[number]
    return SharedStream(
        pid=user.pid,
        stream=user.stream,
        modalities={
            modality_name(number): ModalityOnStream(
                launches=user.launches[number],
                first_ns=user.first_ns[number],
                last_ns=user.last_ns[number],
                stages=[
                    own_stage_name(own_names, user.pid, stage)
                    for stage in range(STAGE_IDS)
                    if user.stage_masks[number] >> stage & 1
                ],
            )
            for number in here
        },
        vision_beside_text=bool(stages & _VISION and stages & _TEXT),
        since_ns=sorted(user.first_ns[number] for number in named)[1],
    )
