# SPDX-License-Identifier: Apache-2.0
"""What an engine said of itself, as the frame and the outputs read it. Values; their age is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hotstage.engines.quantiles import Phase
from hotstage.engines.table import Runtime

NAN = math.nan


@dataclass(frozen=True, slots=True)
class ModelSample:
    """One model of an engine, or all of them (`model` empty). NaN and absent keys are unknown, never 0.

    `*_total` are the engine's own counts since it began; rates are per second over the last 10 s, requests by
    their end. `waiting` is by reason, `requests` by outcome (`table.OUTCOMES`), `phases` by `table.PHASES`.
    """

    model: str
    queue: float = NAN
    running: float = NAN
    kv_use_ratio: float = NAN
    prompt_tokens_total: float = NAN
    output_tokens_total: float = NAN
    preemptions_total: float = NAN
    mm_cache_hits_total: float = NAN
    mm_cache_queries_total: float = NAN
    prefix_cache_hits_total: float = NAN
    prefix_cache_queries_total: float = NAN
    request_rate: float = NAN
    prompt_token_rate: float = NAN
    output_token_rate: float = NAN
    preemption_rate: float = NAN
    waiting: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, Phase] = field(default_factory=dict)


NO_MODEL = ModelSample("")


@dataclass(frozen=True, slots=True)
class EngineSample:
    """The last that is known of one configured engine."""

    name: str
    instance: str
    """The instance of which its numbers speak."""
    runtime: Runtime | None
    """None until a page told which engine it is."""
    at_ns: int | None
    """CLOCK_MONOTONIC at which the page was asked for; None = there has been none."""
    stale_after_ns: int
    reason: str
    """Why the last attempt gave nothing; empty after one that did."""
    epoch: int
    """Grows when the engine's counts began anew: what was before it is not compared with what is after."""
    models: tuple[ModelSample, ...] = ()
    total: ModelSample = NO_MODEL
    """All models together: sums, the fullest cache, one distribution."""
    scrape_seconds: float = NAN
    failures: Mapping[str, int] = field(default_factory=dict)
    """Attempts that gave nothing, by kind."""
    problems: tuple[str, ...] = ()
    """What the last page said that cannot be true, or was too much."""

    def is_fresh(self, now_ns: int) -> bool:
        """Whether it may speak of now (CLOCK_MONOTONIC)."""
        return self.at_ns is not None and now_ns - self.at_ns <= self.stale_after_ns

    def age_seconds(self, now_ns: int) -> float:
        """NaN when there was none."""
        return NAN if self.at_ns is None else max(now_ns - self.at_ns, 0) / 1e9
