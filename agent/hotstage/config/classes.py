# SPDX-License-Identifier: Apache-2.0
"""`[classes]`: what a token of each modality weighs, and what latency a class of requests may have."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from hotstage.config.section import PositiveFloat, Section, Text, Weight

Medium = Literal["text", "image", "audio", "video"]
FingerprintName = Literal[
    "llm", "vlm", "audio", "vlm+audio", "video", "vlm+video", "audio+video", "vlm+audio+video"
]
"""The fingerprints of requests; a test holds them together with `stages.request_class`."""

SLO_WEIGHTS: dict[Medium, float] = {"text": 0.1, "image": 0.3, "audio": 0.7, "video": 1.0}
SLO_BASELINE_SECONDS: dict[Medium, float] = {"text": 0.1, "image": 0.5, "audio": 2.5, "video": 5.0}
P99_TARGET_SECONDS: dict[FingerprintName, float] = {"llm": 2.0, "vlm": 0.8, "audio": 0.3}


class ClassesConfig(Section, frozen=True, kw_only=True):
    """Request classes: token equivalents, the penalty of a slow class, its target."""

    token_weights: Annotated[
        dict[Medium, Weight],
        Meta(
            description="modality → token equivalents of one of its tokens; default 1, output counts as text"
        ),
    ] = field(default_factory=dict)
    slo_weights: Annotated[
        dict[Medium, Weight],
        Meta(description="modality → weight of its penalty; default text .1, image .3, audio .7, video 1"),
    ] = field(default_factory=dict)
    slo_baseline_seconds: Annotated[
        dict[Medium, PositiveFloat],
        Meta(description="modality → p99 without penalty; default text .1, image .5, audio 2.5, video 5"),
    ] = field(default_factory=dict)
    target_seconds: Annotated[
        dict[FingerprintName, PositiveFloat],
        Meta(description="class → p99 that it should have; default llm 2, vlm .8, audio .3, others none"),
    ] = field(default_factory=dict)
    endpoint_slo_weights: Annotated[
        dict[Text, Weight],
        Meta(description="endpoint → factor on the penalty of its requests; default 1"),
    ] = field(default_factory=dict)
    endpoint_slo_baseline_seconds: Annotated[
        dict[Text, PositiveFloat],
        Meta(description="endpoint → p99 without penalty, in place of its modality's"),
    ] = field(default_factory=dict)
