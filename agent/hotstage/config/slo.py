# SPDX-License-Identifier: Apache-2.0
"""Settings of service level objectives."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from hotstage.config.section import (
    Name,
    PositiveFloat,
    Section,
    Text,
)


class SloObjective(Section, frozen=True, kw_only=True):
    """One service level objective, `[[slo.objectives]]`."""

    name: Annotated[Name, Meta(description="its name in metrics")]
    endpoint: Annotated[
        Text, Meta(min_length=1, description="route of the requests that count; `*` and `?` are allowed")
    ]
    latency_seconds: Annotated[PositiveFloat, Meta(description="a request that takes longer is bad")]
    objective: Annotated[float, Meta(gt=0, lt=1, description="share of the requests that must be good")] = (
        0.99
    )


class SloConfig(Section, frozen=True, kw_only=True):
    """Service level objectives: what share of an endpoint's requests must end well in time."""

    objectives: Annotated[
        list[SloObjective], Meta(max_length=8, description="each counts requests, good and bad")
    ] = field(default_factory=list)
