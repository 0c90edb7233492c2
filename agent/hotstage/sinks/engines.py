# SPDX-License-Identifier: Apache-2.0
"""The last samples of engines → children of their metrics: what is unknown or too old has no series."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hotstage.engines.samples import EngineSample, ModelSample
from hotstage.sinks import engine_metrics as metrics
from hotstage.sinks.metric import Metric

Children = list[tuple[tuple[str, ...], float]]

_OF_MODEL = {
    metrics.QUEUE: "queue",
    metrics.RUNNING: "running",
    metrics.KV_USE: "kv_use_ratio",
    metrics.PROMPT_TOKENS: "prompt_tokens_total",
    metrics.OUTPUT_TOKENS: "output_tokens_total",
    metrics.PREEMPTIONS: "preemptions_total",
    metrics.MM_CACHE_HITS: "mm_cache_hits_total",
    metrics.MM_CACHE_QUERIES: "mm_cache_queries_total",
    metrics.PREFIX_CACHE_HITS: "prefix_cache_hits_total",
    metrics.PREFIX_CACHE_QUERIES: "prefix_cache_queries_total",
}
COLLECTOR = "engine:"
"""What an engine's name begins with among the collectors."""


def engine_children(engines: Iterable[EngineSample], now_ns: int) -> dict[Metric, Children]:
    """`now_ns` is CLOCK_MONOTONIC."""
    children: dict[Metric, Children] = {metric: [] for metric in metrics.ENGINE_METRICS}
    for sample in engines:
        failures = children[metrics.FAILURES]
        failures += [((sample.instance, kind), float(count)) for kind, count in sample.failures.items()]
        if not sample.is_fresh(now_ns) or sample.runtime is None:
            continue
        children[metrics.SCRAPE].append(((sample.instance,), sample.scrape_seconds))
        for model in sample.models:
            _put_model(children, (sample.instance, model.model, sample.runtime.value), model)
    return children


def collectors_up(engines: Iterable[EngineSample], now_ns: int) -> Children:
    """One for each configured engine: 1 while its page is fresh."""
    return [((COLLECTOR + each.name,), float(each.is_fresh(now_ns))) for each in engines]


def collectors_last(engines: Iterable[EngineSample], wall_offset_ns: int) -> Children:
    """Unix time of each engine's last page."""
    return [
        ((COLLECTOR + each.name,), (each.at_ns + wall_offset_ns) / 1e9)
        for each in engines
        if each.at_ns is not None
    ]


def _put_model(children: dict[Metric, Children], labels: tuple[str, ...], model: ModelSample) -> None:
    for metric, field in _OF_MODEL.items():
        value = getattr(model, field)
        if not math.isnan(value):
            children[metric].append((labels, value))
    children[metrics.WAITING] += [((*labels, reason), value) for reason, value in model.waiting.items()]
    children[metrics.REQUESTS] += [((*labels, outcome), value) for outcome, value in model.requests.items()]
    for name, phase in model.phases.items():
        for metric, seconds in (
            (metrics.PHASE_P95, phase.p95_seconds),
            (metrics.PHASE_MEAN, phase.mean_seconds),
        ):
            if not math.isnan(seconds):
                children[metric].append(((*labels, name), seconds))
