# SPDX-License-Identifier: Apache-2.0
"""Settings of the token conflict: visual and text tokens that compete for the memory of one GPU."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hotstage.config.section import PositiveBytes, PositiveFloat, PositiveInt, Ratio, Section


class ConflictConfig(Section, frozen=True, kw_only=True):
    """When an allocation is a conflict; the first four are the seed document's. Judged in the kernel."""

    enabled: Annotated[bool, Meta(description="judge allocations at all")] = True
    allocation_bytes: Annotated[
        PositiveBytes, Meta(description="only allocations that are larger than this are judged")
    ] = 16 << 20
    fragmentation_ratio: Annotated[
        Ratio, Meta(description="and only above this fragmentation, where it is known")
    ] = 0.65
    visual_tokens: Annotated[
        PositiveInt, Meta(description="and with more tokens of images and videos in flight in the process")
    ] = 512
    text_tokens: Annotated[PositiveInt, Meta(description="and with more tokens of text in flight")] = 4_096
    reserve_ratio: Annotated[
        Ratio, Meta(description="share of a GPU's memory that is not counted on when room is reckoned")
    ] = 0.02
    stale_seconds: Annotated[
        PositiveFloat, Meta(description="what is older gives no verdict: free memory, tokens, fragmentation")
    ] = 3.0
    gap_seconds: Annotated[
        PositiveFloat, Meta(description="least time between two verdicts that one process is told of")
    ] = 1.0
    active_seconds: Annotated[
        PositiveFloat, Meta(description="how long one verdict keeps its window open")
    ] = 5.0
    visual_token_bytes: Annotated[
        PositiveInt,
        Meta(
            description="copied to the device for a visual token, where no mark says how many there are;"
            " 14 × 14 pixels of 3 halves"
        ),
    ] = 1_176
    text_token_bytes: Annotated[
        PositiveInt, Meta(description="the same for a text token: its id, 64 bits in PyTorch")
    ] = 8
