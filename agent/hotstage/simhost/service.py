# SPDX-License-Identifier: Apache-2.0
"""What each stage costs: the route of a request, and how long a stage takes, in how many calls.

Pure. The figures follow published ones for a small vision-language model on a data-centre GPU.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hotstage.simhost.workload import Arrival
from hotstage.stages.stage import Modality, Stage

NOISE_SIGMA = 0.15
"""Of the logarithm of every service time."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """Service time = (`base_seconds` + tokens × `token_seconds`) × noise. `launches` 0: no GPU, only time."""

    base_seconds: float
    token_seconds: float = 0.0
    launches: int = 0
    copies: int = 0
    device_bytes_per_token: int = 0


@dataclass(frozen=True, slots=True)
class StageWork:
    """One stage of one request, ready to be done; `seconds` at full speed."""

    stage: Stage
    modality: Modality
    seconds: float
    tokens: int
    launches: int
    copies: int
    input_bytes: int
    device_bytes: int


COSTS = {
    Stage.media_fetch: StageCost(0.030, 4e-6),
    Stage.media_decode: StageCost(0.020, 8e-6),
    Stage.preprocess: StageCost(0.018, 6e-6),
    Stage.tokenize: StageCost(0.008, 2e-6),
    Stage.vision_encode: StageCost(0.030, 80e-6, launches=48, copies=2, device_bytes_per_token=60_000),
    Stage.audio_encode: StageCost(0.050, 60e-6, launches=40, copies=1, device_bytes_per_token=40_000),
    Stage.video_encode: StageCost(0.080, 45e-6, launches=72, copies=4, device_bytes_per_token=60_000),
    Stage.cross_modal_align: StageCost(0.012, 3e-6, launches=8, copies=1, device_bytes_per_token=20_000),
    Stage.llm_prefill: StageCost(0.020, 25e-6, launches=64, copies=1, device_bytes_per_token=120_000),
    Stage.detokenize: StageCost(0.006, 10e-6),
}

WORKERS = {
    Stage.media_fetch: 8,
    Stage.media_decode: 4,
    Stage.preprocess: 4,
    Stage.tokenize: 3,
    Stage.vision_encode: 6,
    Stage.audio_encode: 3,
    Stage.video_encode: 4,
    Stage.cross_modal_align: 3,
    Stage.llm_prefill: 5,
    Stage.detokenize: 3,
}
"""Threads of an instance, enough for 2.5 times the demo's rate and for one stage at ten times its time."""

DECODE_STEP_SECONDS = 0.005
DECODE_SECONDS_PER_REQUEST = 0.00005
DECODE_LAUNCHES = 6
DECODE_STEPS_PER_CALL = 4
GRAPH_NODES = 40
MAX_BATCH = 64

SCHEDULER_SECONDS = 0.02
"""The scheduler admits what waits once a period, as an engine does between two steps."""

WEIGHT_BYTES = 15 << 30

_MEDIA = (Stage.media_fetch, Stage.media_decode, Stage.preprocess)
_ANSWER = (Stage.llm_prefill, Stage.llm_decode, Stage.detokenize)
ROUTES = {
    Modality.text: (Stage.tokenize, Stage.queue, *_ANSWER),
    Modality.image: (
        *_MEDIA,
        Stage.tokenize,
        Stage.queue,
        Stage.vision_encode,
        Stage.cross_modal_align,
        *_ANSWER,
    ),
    Modality.audio: (*_MEDIA, Stage.queue, Stage.audio_encode, *_ANSWER),
    Modality.video: (*_MEDIA, Stage.queue, Stage.video_encode, Stage.cross_modal_align, *_ANSWER),
}
"""The stages of a request in order. `queue` is the scheduler's line before the first GPU stage."""

_TEXT_STAGES = frozenset({Stage.tokenize})
_OUTPUT_STAGES = frozenset({Stage.detokenize, Stage.llm_decode})
_ALL_INPUT_STAGES = frozenset({Stage.llm_prefill, Stage.queue})


def tokens_of(arrival: Arrival, stage: Stage) -> int:
    """The tokens that the stage works on for this request."""
    if stage in _TEXT_STAGES:
        return arrival.text_tokens
    if stage in _OUTPUT_STAGES:
        return arrival.output_tokens
    if stage in _ALL_INPUT_STAGES:
        return arrival.text_tokens + arrival.media_tokens
    return arrival.media_tokens


def work_of(arrival: Arrival, stage: Stage, *, seed: int, calls_scale: float = 1.0) -> StageWork:
    """The stage's work for this request; the same seed gives the same noise, whatever else runs.

    `calls_scale` multiplies the launches, never the time.
    """
    cost = COSTS[stage]
    tokens = tokens_of(arrival, stage)
    source = random.Random(f"{seed}/{arrival.number}/{stage.name}")  # noqa: S311
    noise = source.lognormvariate(0.0, NOISE_SIGMA)
    return StageWork(
        stage=stage,
        modality=arrival.modality,
        seconds=(cost.base_seconds + tokens * cost.token_seconds) * noise,
        tokens=tokens,
        launches=max(1, round(cost.launches * calls_scale)) if cost.launches else 0,
        copies=cost.copies,
        input_bytes=max(arrival.media_bytes, 4 * tokens),
        device_bytes=max(1 << 20, tokens * cost.device_bytes_per_token),
    )


def decode_step_seconds(batch: int) -> float:
    """One token of every request in the batch, at full speed."""
    return DECODE_STEP_SECONDS + batch * DECODE_SECONDS_PER_REQUEST
