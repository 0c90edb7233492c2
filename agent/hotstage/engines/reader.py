# SPDX-License-Identifier: Apache-2.0
"""A page's series and an engine's table → readings by model. Pure; what cannot be true is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from hotstage.engines.exposition import Series, read_lines
from hotstage.engines.reading import Page, Reading, Spread
from hotstage.engines.table import REPLICA_LABELS, START_TIME, Split, Table, Timing

MODELS_MAX = 16
"""Models told apart at one endpoint; further ones are left out, and the page's problems say so."""
KEYS_MAX = 16
OTHER = "other"
_MODEL_LENGTH, _KEY_LENGTH = 128, 32
_RATIO_SLACK = 1.01
_PROBLEMS_MAX = 4

_ByKey = dict[tuple[str, str], float]
"""(model, value of one label) → a number."""


def read_page(body: bytes, table: Table) -> Page:
    """Raises nothing: a page of nonsense has no models and says why in `problems`."""
    lines = read_lines(body, table.wanted)
    reader = _Reader(table, lines.series)
    models = reader.read()
    problems = list(reader.problems)
    if lines.unreadable:
        problems.append(f"{lines.unreadable} lines cannot be read")
    if lines.is_cut:
        problems.append("the page has too many lines: its end was not read")
    return Page(models, reader.started_seconds(), tuple(problems))


class _Reader:
    """One page on its way."""

    def __init__(self, table: Table, series: Iterable[Series]) -> None:
        self._table = table
        self._by_name: dict[str, list[Series]] = {}
        self._models: dict[str, Reading] = {}
        self.problems: list[str] = []
        for each in series:
            self._by_name.setdefault(each.name, []).append(each)

    def read(self) -> dict[str, Reading]:
        self._read_gauges()
        self._read_counters()
        for split in self._table.waiting:
            for model, key, value in self._keyed(split, is_gauge=True):
                _add(self._of(model).waiting, key, value)
        for split in self._table.requests:
            for model, key, value in self._keyed(split, is_gauge=False):
                _add(self._of(model).requests, key, value)
        for timing in self._table.timings:
            for name in self._present(timing.names, "", "_total", "_bucket", "_count"):
                for model, spread in self._spreads(name, timing).items():
                    self._of(model).spreads.setdefault(timing.phase, spread)
        return self._models

    def started_seconds(self) -> float:
        found = self._by_name.get(START_TIME.decode(), ())
        return next((each.value for each in found if math.isfinite(each.value)), math.nan)

    def _read_gauges(self) -> None:
        for gauge in self._table.gauges:
            for name in self._present(gauge.names, ""):
                limit = _RATIO_SLACK if gauge.is_ratio else math.inf
                values = self._values(name, where=gauge.where, is_gauge=True, is_ratio=gauge.is_ratio)
                for (model, _), value in values.items():
                    if self._is_sane(name, value, limit):
                        bounded = min(value, 1.0) if gauge.is_ratio else value
                        self._of(model).gauges.setdefault(gauge.says, bounded)

    def _read_counters(self) -> None:
        for counter in self._table.counters:
            for name in self._present(counter.names, "", "_total"):
                for (model, _), value in self._any_ending(name, where=counter.where).items():
                    if self._is_sane(name, value):
                        self._of(model).counters.setdefault(counter.says, value)

    def _keyed(self, split: Split, *, is_gauge: bool) -> Iterator[tuple[str, str, float]]:
        """(model, key, value) of the first of its names that is on the page."""
        for name in self._present(split.names, "", "_total"):
            for (model, label), value in self._any_ending(name, label=split.label, is_gauge=is_gauge).items():
                if self._is_sane(name, value):
                    key = split.key or split.keys.get(label) or split.otherwise or label
                    yield model, _clean(key, _KEY_LENGTH), value
            return

    def _spreads(self, name: str, timing: Timing) -> dict[str, Spread]:
        """Whatever of histogram, summary and sum beside a count the page has, by model."""
        where = timing.where
        buckets = self._values(f"{name}_bucket", label="le", where=where)
        # Triton's manual shows buckets without `_bucket`.
        buckets = buckets or self._values(name, label="le", where=where)
        quantiles = self._values(name, label="quantile", where=where)
        totals, counts = self._values(f"{name}_sum", where=where), self._values(f"{name}_count", where=where)
        if timing.counted_by is not None:
            totals, counts = self._any_ending(name, where=where), self._any_ending(timing.counted_by)
        spreads: dict[str, Spread] = {}
        for model in {key[0] for part in (buckets, quantiles, totals) for key in part}:
            spread = _spread(model, timing.factor, buckets, quantiles, totals, counts)
            if spread is None:
                self._say(f"{name} is no histogram: its counts fall, or are no numbers")
            elif not math.isnan(spread.count):
                spreads[model] = spread
        return spreads

    def _any_ending(
        self,
        name: str,
        *,
        label: str | None = None,
        where: Mapping[str, str] | None = None,
        is_gauge: bool = False,
    ) -> _ByKey:
        """A counter is exposed with `_total` by newer clients, and without by older ones."""
        full = f"{name}_total" if f"{name}_total" in self._by_name else name
        return self._values(full, label=label, where=where, is_gauge=is_gauge)

    def _values(
        self,
        name: str,
        *,
        label: str | None = None,
        where: Mapping[str, str] | None = None,
        is_gauge: bool = False,
        is_ratio: bool = False,
    ) -> _ByKey:
        """The number over all labels but the model and `label`."""
        ranks: dict[tuple[str, str, frozenset[tuple[str, str]]], float] = {}
        for each in self._by_name.get(name, ()):
            labels = dict(each.labels)
            if any(labels.pop(key, None) != value for key, value in (where or {}).items()):
                continue
            # SGLang tells the whole queue under no priority, and each priority's part beside it.
            if is_gauge and labels.get("priority"):
                continue
            if {"le", "quantile"} & {label, *labels} and label not in labels:
                continue
            place = (
                labels.pop(self._table.model_label, ""),
                labels.pop(label, "") if label is not None else "",
                frozenset(item for item in labels.items() if item[0] not in REPLICA_LABELS),
            )
            ranks[place] = _larger(ranks.get(place), each.value)
        totals: _ByKey = {}
        for (model, key, _), value in ranks.items():
            before = totals.get((model, key), 0.0)
            totals[model, key] = _larger(before, value) if is_ratio else before + value
        return totals

    def _present(self, names: Iterable[str], *endings: str) -> Iterator[str]:
        """Names with the prefix under which they are on the page, without ending; the newest first."""
        for name in names:
            for prefix in self._table.prefixes:
                if any(f"{prefix}{name}{ending}" in self._by_name for ending in endings):
                    yield f"{prefix}{name}"

    def _of(self, model: str) -> Reading:
        name = _clean(model, _MODEL_LENGTH)
        if name not in self._models and len(self._models) >= MODELS_MAX:
            self._say(f"more than {MODELS_MAX} models: the others are left out")
            return Reading()
        return self._models.setdefault(name, Reading())

    def _say(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(problem)

    def _is_sane(self, name: str, value: float, limit: float = math.inf) -> bool:
        if 0 <= value <= limit and math.isfinite(value):
            return True
        allowed = "0 or more" if limit == math.inf else "0 to 1"
        self._say(f"{name} is {value:g}, not {allowed}")
        return False


def _spread(
    model: str, factor: float, buckets: _ByKey, quantiles: _ByKey, totals: _ByKey, counts: _ByKey
) -> Spread | None:
    """None = a histogram that cannot be one. Without a count it is unknown, and NaN says so."""
    total, count = totals.get((model, ""), math.nan) * factor, counts.get((model, ""), math.nan)
    by_edge = {_number(key): value for (of, key), value in buckets.items() if of == model}
    edges = sorted(edge for edge in by_edge if not math.isnan(edge))
    heights = [by_edge[edge] for edge in edges]
    if edges:
        if edges[-1] != math.inf:
            edges, heights = [*edges, math.inf], [*heights, count]
        is_rising = all(low <= high for low, high in pairwise(heights))
        if not is_rising or not heights[0] >= 0 or not math.isfinite(heights[-1]):
            return None
        count = heights[-1]
    if not (count >= 0 and math.isfinite(count)):
        count = math.nan
    summary = {
        _number(key): value * factor
        for (of, key), value in quantiles.items()
        if of == model and value >= 0 and math.isfinite(value)
    }
    scaled = tuple(edge * factor for edge in edges)
    return Spread(scaled, tuple(heights), count, total, summary)


def _add(into: dict[str, float], key: str, value: float) -> None:
    if key not in into and len(into) >= KEYS_MAX - 1:
        key = OTHER
    into[key] = into.get(key, 0.0) + value


def _larger(one: float | None, other: float) -> float:
    """NaN wins: a number that is none may not hide behind another."""
    return other if one is None or math.isnan(other) or other > one else one


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _clean(text: str, length: int) -> str:
    """A name as a label may carry it: printable, and not endless."""
    return "".join(char for char in text[:length] if char.isprintable())
