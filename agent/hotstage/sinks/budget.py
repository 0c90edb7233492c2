# SPDX-License-Identifier: Apache-2.0
"""How the series of a host are shared out among the parts of the metric table. The one place of this sum.

Reckoned for a large host: 8 GPUs, 2 models, 4 modalities, 16 endpoints, 14 server instances, 8 engines, 44
breakers. A metric that finds no room goes on under `other` (counters, histograms) or leaves out the least
(gauges), and `hotstage_series_dropped_total` names it. A scrape of 1,000 histograms takes 163 ms of CPU, so
these are what is dear: a child has a bucket for each edge, one for +Inf, a sum and a count.

| part | what it is reckoned for |
|---|---|
| stage | 33 stages × modalities, as they occur, on 2 GPUs and on none known yet: 71 histograms of 14 edges |
| run_queue | 13 stages: of 15, two wait for nothing but files and the network |
| endpoint | 32 histograms of 12 edges: 16 endpoints of 2 models; 64 routes; 48 penalties by class |
| request_class | 9 fingerprints × 6 sizes counted, 27 with quantiles |
| token | 32 endpoints × modalities |
| ttft, itl | 7 modalities; 6 parts of the first token of each |
| memory | 28 kinds × GPUs, 13 stages × modalities that allocate, 6 outcomes of conflicts |
| engine | 8 models of engines; their own pages say more |
| gpu | 28 GPUs by name; 24 XIDs by GPU; 6 reasons to slow down of 8 |
| driver | 15 tracepoints, 2 that tell of submits, 5 rings, 8 timelines, 8 GPUs, 10 of ioctls, OOM kills |
| kernel | the 16 names launched most, graphs, what has no name, the rest |
| window | 36 kinds × severities × stages: of some 20 kinds most are of no stage |
| breaker | 44 breakers × 6 states, and what else is told of each; 51 changes of state of those that move |
"""

from __future__ import annotations

from collections.abc import Iterable

from hotstage.sinks.metric import Metric

SERIES_MAX = 5_000
CUSTOM_SERIES = 32
"""Of them, those of an operator's own programs: their metrics are in no table."""
HISTOGRAMS_MAX = 300

PARTS: dict[str, int] = {
    "stage": 1607,
    "run_queue": 117,
    "endpoint": 960,
    "instance": 224,
    "host": 6,
    "request_class": 171,
    "token": 32,
    "ttft": 56,
    "itl": 14,
    "calls": 180,
    "launches": 6,
    "kernel": 19,
    "call": 64,
    "memory": 86,
    "window": 108,
    "breaker": 448,
    "gpu": 124,
    "slo": 25,
    "webhook": 227,
    "engine": 244,
    "driver": 81,
    "agent": 166,
}
"""Part (what follows `hotstage_`) → its series at most; a test holds it against the table, and sums it up."""

AGENT = "agent"
"""What belongs to no other part speaks of the agent itself."""


def part_of(metric: Metric) -> str:
    """The part whose name it begins with, the longest of several."""
    name = metric.name.removeprefix("hotstage_")
    return max((part for part in PARTS if name.startswith(f"{part}_")), key=len, default=AGENT)


def series_by_part(metrics: Iterable[Metric]) -> dict[str, int]:
    """Series at the caps of all metrics, by part."""
    found = dict.fromkeys(PARTS, 0)
    for metric in metrics:
        found[part_of(metric)] += metric.series_max
    return found
