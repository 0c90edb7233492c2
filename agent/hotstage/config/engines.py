# SPDX-License-Identifier: Apache-2.0
"""The settings of `[engines]`: which inference engines are looked at, how often and how much of them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from hotstage.config.section import (
    BaseUrl,
    Label,
    Name,
    PathText,
    PositiveBytes,
    PositiveFloat,
    PositiveInt,
    Section,
)


class EngineEndpoint(Section, frozen=True, kw_only=True):
    """One inference engine whose `/metrics` is read, `[[engines.endpoints]]`."""

    name: Annotated[Name, Meta(description="its name in checks and in hotstage_collector_up, as engine:NAME")]
    url: Annotated[BaseUrl, Meta(description="http(s) URL; without a path it is /metrics")]
    kind: Annotated[
        Literal["auto", "vllm", "sglang", "triton"],
        Meta(description="which engine; auto is told by the names on its page"),
    ] = "auto"
    instance: Annotated[
        Label | None,
        Meta(description="the instance that its numbers speak of, as the marks call it; absent = name"),
    ] = None
    token_file: Annotated[
        PathText | None,
        Meta(description="file with a bearer token for it; sent by https or to loopback only"),
    ] = None


class EnginesConfig(Section, frozen=True, kw_only=True):
    """What inference engines say of themselves."""

    period_seconds: Annotated[PositiveFloat, Meta(description="time between two looks at an engine")] = 2.0
    timeout_seconds: Annotated[
        PositiveFloat, Meta(description="a look that takes longer, all of it together, is given up")
    ] = 1.5
    window_seconds: Annotated[
        PositiveFloat, Meta(description="quantiles are over what was added to histograms in this time")
    ] = 60.0
    min_samples: Annotated[PositiveInt, Meta(description="below this many samples a quantile is unknown")] = (
        20
    )
    max_bytes: Annotated[
        PositiveBytes, Meta(description="a page larger than this, unpacked, is not read")
    ] = 4 << 20
    endpoints: Annotated[
        list[EngineEndpoint], Meta(max_length=16, description="engines that are looked at")
    ] = field(default_factory=list)
