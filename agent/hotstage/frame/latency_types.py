# SPDX-License-Identifier: Apache-2.0
"""Time of finished requests by component, and of their first token by stage, field by field. Values only.

Quantiles are nearest rank over the latency window, null below `quantile_min_samples`. Unknown is null, never
0.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

ComponentKind = Literal["request", "stage", "wait"]
Source = Literal["mark", "gap", "kernel"]

_SOURCE = Meta(
    description="`mark`: told by begin and end; `gap`: between two marks; `kernel`: what the threads of "
    "synchronous stages waited for, which is part of those stages"
)


class Component(Struct, frozen=True, gc=False):
    """Time of a request in one stage or wait, all its visits together."""

    stage: Annotated[str, Meta(description="a stage's name or a wait's: queue, delivery, run_queue, sync, …")]
    kind: ComponentKind
    source: Annotated[Source, _SOURCE]
    lora_rank: Annotated[int | None, Meta(description="of lora_apply, a row each; null: all, or not said")]
    lora_module: str | None
    count: Annotated[int, Meta(description="requests that had it")]
    mean_seconds: float | None
    p95_seconds: float | None
    variance: Annotated[float | None, Meta(description="s², of a sample (n − 1); null below two")]
    share: Annotated[
        float | None,
        Meta(description="of the time of all requests; stages overlap, so that the sum may be above 1"),
    ]


class Components(Struct, frozen=True):
    """`request` is the whole request; `components` in pipeline order, waits last."""

    window_seconds: float
    request: Component
    components: list[Component]


class LatencyPart(Struct, frozen=True, gc=False):
    """What one stage or wait decided of the time to first token."""

    name: str
    kind: Literal["stage", "wait"]
    source: Annotated[Source, _SOURCE]
    count: Annotated[int, Meta(description="requests of which it decided some")]
    mean_seconds: Annotated[float, Meta(description="over those")]
    p95_seconds: float | None
    share: Annotated[float, Meta(description="of the TTFT of all requests; the parts add up to 1")]


class TokenLatency(Struct, frozen=True, gc=False):
    """Time to first token and between tokens of the requests of one modality."""

    modality: Annotated[str, Meta(description="`all` for those of the whole host")]
    requests: Annotated[int, Meta(description="of the window, neither cancelled nor refused")]
    ttft_samples: int
    ttft_bases: Annotated[dict[str, int], Meta(description="how often which was taken for the first token")]
    ttft_mean_seconds: float | None
    ttft_p50_seconds: float | None
    ttft_p95_seconds: float | None
    itl_samples: int
    itl_mean_seconds: float | None
    itl_p50_seconds: float | None
    itl_p95_seconds: float | None
    slowest: Annotated[str | None, Meta(description="the part that decided most of the TTFT")]
    parts: Annotated[list[LatencyPart], Meta(description="largest share first")]


class Latency(Struct, frozen=True):
    """First and further tokens of the latency window; `modalities` by name, those with requests only."""

    window_seconds: float
    total: TokenLatency
    modalities: list[TokenLatency]
