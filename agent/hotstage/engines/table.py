# SPDX-License-Identifier: Apache-2.0
"""What a table of an engine is made of: which of its metrics says what, in which unit. Values only.

An engine's table names its metrics without prefix; every prefix is tried, and of several names for one thing
the first that is on the page. `_total` and `_bucket` endings are added by the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

SECONDS, MILLISECONDS, MICROSECONDS = 1.0, 1e-3, 1e-6
"""Factors to base units."""

GAUGES = ("queue", "running", "kv_use_ratio")
COUNTERS = (
    "prompt_tokens",
    "output_tokens",
    "preemptions",
    "mm_cache_hits",
    "mm_cache_queries",
    "prefix_cache_hits",
    "prefix_cache_queries",
)
PHASES = ("ttft", "itl", "e2e", "queue", "prefill", "decode")
"""Time to first token, between tokens, of a whole request, and of its parts."""
OUTCOMES = ("ok", "error", "cancelled", "refused", "ended")
"""`ended` is all of them, from engines that do not tell them apart."""


class Runtime(StrEnum):
    vllm = "vllm"
    sglang = "sglang"
    triton = "triton"


@dataclass(frozen=True, slots=True)
class Named:
    """A metric under all the names it has had, the newest first.

    `where` picks the series whose labels have these values. Over an engine's ranks of one replica the largest
    counts, over everything else the sum, or again the largest (`is_ratio`).
    """

    says: str
    names: tuple[str, ...]
    where: Mapping[str, str] = field(default_factory=dict)
    is_ratio: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """A metric that stands for several: `label`'s value, or `key` where the metric is one of them by itself.

    `keys` maps a label's values to ours; one that is not in it keeps its own name, or becomes `otherwise`.
    """

    names: tuple[str, ...]
    label: str | None = None
    key: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    otherwise: str | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a phase: a histogram or a summary, or a sum (`names`) beside a count (`counted_by`).

    `factor` makes seconds of the engine's unit.
    """

    phase: str
    names: tuple[str, ...]
    factor: float = SECONDS
    where: Mapping[str, str] = field(default_factory=dict)
    counted_by: str | None = None


@dataclass(frozen=True)
class Table:
    """One engine. `marks` begin names that only it has; `model_label` is the label with the model."""

    runtime: Runtime
    marks: tuple[str, ...]
    prefixes: tuple[str, ...]
    model_label: str
    gauges: tuple[Named, ...]
    counters: tuple[Named, ...]
    waiting: tuple[Split, ...]
    requests: tuple[Split, ...]
    timings: tuple[Timing, ...]

    @cached_property
    def wanted(self) -> frozenset[bytes]:
        """Every series name that the table reads, as it stands on the page."""
        of_named = [name for each in (*self.gauges, *self.counters) for name in each.names]
        of_split = [name for each in (*self.waiting, *self.requests) for name in each.names]
        timed = [name for entry in self.timings for name in entry.names]
        timed += [each.counted_by for each in self.timings if each.counted_by is not None]
        endings = [*of_named, *of_split, *timed]
        endings += [f"{name}_total" for name in endings]
        endings += [f"{name}_{part}" for name in timed for part in ("bucket", "sum", "count")]
        return frozenset(
            f"{prefix}{ending}".encode() for prefix in self.prefixes for ending in endings
        ) | frozenset({START_TIME})


START_TIME = b"process_start_time_seconds"
"""Of Prometheus's own clients: an engine that began anew may have passed its old counts already."""

REPLICA_LABELS = ("tp_rank", "pp_rank", "moe_ep_rank", "pid")
"""Ranks and processes that work on the same requests: each may tell the same number."""
