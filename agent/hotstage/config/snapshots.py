# SPDX-License-Identifier: Apache-2.0
"""`[snapshots]` and `[recovery]`: how many snapshots are kept, and what outlives the process that made it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from hotstage.config.section import Days, PositiveBytes, PositiveInt, Section
from hotstage.config.stages import StageWord


class SnapshotsConfig(Section, frozen=True, kw_only=True):
    """How many snapshots of window and breaker openings are kept; the oldest go first."""

    keep_max: Annotated[PositiveInt, Meta(description="snapshots kept")] = 200
    keep_bytes: Annotated[PositiveBytes, Meta(description="bytes that they may take, compressed")] = 64 << 20
    keep_days: Annotated[Days, Meta(description="older ones go")] = 30.0


class RecoveryConfig(Section, frozen=True, kw_only=True):
    """What a request has made that outlives its process: the recovery plan builds on it."""

    inputs_survive: Annotated[
        bool, Meta(description="gateway and media_fetch: the input can be read again, byte for byte")
    ] = True
    prepared_survives: Annotated[
        bool, Meta(description="media_decode, preprocess and tokenize: frames, tensors and tokens")
    ] = False
    encoded_features_survive: Annotated[
        bool, Meta(description="encoders and cross_modal_align: features are kept outside the process")
    ] = False
    kv_survives: Annotated[
        bool, Meta(description="llm_prefill, llm_decode and kv_transfer: the KV cache is kept outside")
    ] = False
    stages: Annotated[
        dict[StageWord, bool], Meta(description="stage → survives, where one differs from its kind")
    ] = field(default_factory=dict)
