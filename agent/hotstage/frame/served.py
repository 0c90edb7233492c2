# SPDX-License-Identifier: Apache-2.0
"""What pulses say about the last minute → columns of endpoint, instance, route and stage. Never judges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hotstage.config.settings import FrameConfig
from hotstage.frame.align import age_seconds
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.heat import fill_heat
from hotstage.frame.request_costs import RequestCosts
from hotstage.frame.rolling import Codes, Rolling, Rows, chosen, nearest_ranks, sums
from hotstage.grouping import first_of_each
from hotstage.stages.names import OTHER
from hotstage.stages.pulse import NameTable, Pulse
from hotstage.stages.spans import OUTCOME_CANCELLED, OUTCOME_ERROR, OUTCOME_LOST, OUTCOME_REFUSED
from hotstage.stages.stage import modality_name
from hotstage.stages.tracker import PROBES_OFF

Cells = dict[Entity, dict[str, float]]

RATE_NS = 10_000_000_000
SHARES = (0.50, 0.95, 0.99)

_REQUESTS_KEPT = 32_768
_SPANS_KEPT = 131_072

_REQUEST_DTYPE = np.dtype(
    [
        ("at_ns", np.uint64),
        ("started_ns", np.uint64),
        ("seconds", np.float64),
        ("endpoint", np.int64),
        ("instance", np.int64),
        ("route", np.int64),
        ("tokens", np.float64),
        ("outcome", np.uint8),
        ("modality", np.uint8),
    ]
)
_SPAN_DTYPE = np.dtype(
    [("at_ns", np.uint64), ("code", np.int64), ("seconds", np.float64), ("count", np.float64)]
)

_NO_COSTS = RequestCosts()

ROUTES_MAX = 2000
"""Pairs of endpoint and instance that are told apart, in the order of their appearance; others are one."""
_OTHER_ROUTE = OTHER << 20 | OTHER

_GROUPS: tuple[EntityKind, ...] = (
    EntityKind.host,
    EntityKind.endpoint,
    EntityKind.instance,
    EntityKind.route,
)


class Served:
    """Take every pulse; `fill` once a frame. Not thread-safe."""

    def __init__(self, config: FrameConfig) -> None:
        self._window_ns = round(config.latency_window_seconds * 1e9)
        self._min_samples = config.quantile_min_samples
        self._config = config
        self._max_endpoints = config.max_endpoints
        self._requests = Rolling(_REQUEST_DTYPE, _REQUESTS_KEPT)
        self._spans = Rolling(_SPAN_DTYPE, _SPANS_KEPT)
        self._ended: dict[EntityKind, Counter[int]] = {kind: Counter() for kind in _GROUPS}
        self._ended_stages: Counter[int] = Counter()
        self._first_ns: int | None = None
        self._pulse: Pulse | None = None
        self._modality: dict[int, Counter[int]] = {}
        self._routes: set[int] = set()

    @property
    def endpoint_modality(self) -> Mapping[str, str]:
        """Endpoint → the modality of most of its requests so far."""
        if self._pulse is None:
            return {}
        names = self._pulse.names.endpoints
        return {
            names[endpoint]: modality_name(seen.most_common(1)[0][0])
            for endpoint, seen in self._modality.items()
            if endpoint
        }

    def take(self, pulses: Sequence[Pulse]) -> None:
        """Add what ended in the pulses of a second, at once. While the probes are off nothing does; with them
        all begins anew.
        """
        for pulse in pulses:
            if PROBES_OFF in pulse.stale:
                self._first_ns = None
            elif self._first_ns is None:
                self._first_ns = pulse.at_ns
        seen = [pulse for pulse in pulses if PROBES_OFF not in pulse.stale]
        if not seen:
            return
        self._pulse = seen[-1]
        requests, spans = [pulse.requests_ended for pulse in seen], [pulse.ended for pulse in seen]
        at_ns = np.array([pulse.at_ns for pulse in seen], np.uint64)
        if any(map(len, requests)):
            self._take_requests(_joined(requests), np.repeat(at_ns, list(map(len, requests))))
        if any(map(len, spans)):
            self._take_spans(_joined(spans), np.repeat(at_ns, list(map(len, spans))))

    def _take_requests(self, ended: Rows, at_ns: Rows) -> None:
        """`at_ns` (N,): of the pulse that each ended in."""
        rows = np.zeros(len(ended), _REQUEST_DTYPE)
        rows["at_ns"] = at_ns
        rows["started_ns"] = ended["started_ns"]
        rows["seconds"] = (
            np.maximum(ended["ended_ns"].astype(float) - ended["started_ns"].astype(float), 0.0) / 1e9
        )
        rows["endpoint"], rows["instance"] = self._folded(ended["endpoint"]), ended["instance"]
        rows["route"] = self._route_codes(rows)
        rows["tokens"], rows["outcome"], rows["modality"] = (
            ended["output_tokens"],
            ended["outcome"],
            ended["modality"],
        )
        self._requests.append(rows)
        for kind in _GROUPS:
            self._ended[kind].update(_codes(kind, rows).tolist())
        for endpoint, modality in zip(rows["endpoint"].tolist(), rows["modality"].tolist(), strict=True):
            self._modality.setdefault(endpoint, Counter())[modality] += 1

    def _take_spans(self, ended: Rows, at_ns: Rows) -> None:
        spans = np.zeros(len(ended), _SPAN_DTYPE)
        count = np.maximum(ended["count"], 1)
        spans["at_ns"], spans["count"] = at_ns, count
        spans["code"] = ended["label"].astype(np.int64) << 8 | ended["modality"]
        spans["seconds"] = ended["duration_ns"] / count / 1e9
        self._spans.append(spans)
        for code, number in sums(spans["code"], spans["count"]).items():
            self._ended_stages[code] += int(number)

    def fill(self, now_ns: int, cells: Cells, costs: RequestCosts = _NO_COSTS) -> None:
        """Columns of source `requests` of all entities seen since the start; none while probes are off."""
        pulse = self._pulse
        if pulse is None or self._first_ns is None:
            return
        seconds = min(max((now_ns - self._first_ns) / 1e9, 1.0), RATE_NS / 1e9)
        recent = self._requests.since(max(now_ns - self._window_ns, self._first_ns - 1))
        inflight = np.zeros(len(pulse.requests_open), _REQUEST_DTYPE)
        inflight["started_ns"] = pulse.requests_open["started_ns"]
        inflight["endpoint"] = self._folded(pulse.requests_open["endpoint"])
        inflight["instance"] = pulse.requests_open["instance"]
        inflight["route"] = self._route_codes(inflight)
        parts = _parts(recent, inflight, now_ns)
        for kind in _GROUPS:
            self._fill_group(kind, parts, now_ns, seconds, cells)
        self._fill_stages(now_ns, seconds, cells)
        _fill_costs(costs, cells)
        fill_heat(self._config, costs, cells)

    def _fill_group(self, kind: EntityKind, parts: _Parts, now_ns: int, seconds: float, cells: Cells) -> None:
        assert self._pulse is not None
        entity_of = _namer(kind, self._pulse.names)
        inflight = _codes(kind, parts.inflight)
        known = set(self._ended[kind]) | set(inflight.tolist())
        rates = sums(_codes(kind, parts.begun))
        waiting = sums(inflight)
        oldest = _oldest(inflight, parts.inflight["started_ns"], now_ns)
        ranks = nearest_ranks(_codes(kind, parts.judged), parts.judged["seconds"], SHARES)
        counted = sums(_codes(kind, parts.counted))
        failed = sums(_codes(kind, parts.failed))
        tokens = sums(_codes(kind, parts.late), parts.late["tokens"])
        for code in known:
            cell = cells.setdefault(entity_of(code), {})
            cell["request_rate"] = rates.get(code, 0.0) / seconds
            cell["requests_ended"] = float(self._ended[kind][code])
            cell["inflight"] = waiting.get(code, 0.0)
            cell["oldest_age_seconds"] = oldest.get(code, math.nan)
            cell["error_ratio"] = failed.get(code, 0.0) / counted[code] if counted.get(code) else math.nan
            self._put_ranks(cell, ranks.get(code))
            if kind in (EntityKind.host, EntityKind.instance):
                cell["token_rate"] = tokens.get(code, 0.0) / seconds

    def _fill_stages(self, now_ns: int, seconds: float, cells: Cells) -> None:
        assert self._pulse is not None and self._first_ns is not None
        recent = self._spans.since(max(now_ns - self._window_ns, self._first_ns - 1))
        ranks = nearest_ranks(recent["code"], recent["seconds"], SHARES)
        late = chosen(recent, recent["at_ns"] > max(now_ns - RATE_NS, 0))
        rates = sums(late["code"], late["count"])
        spans = self._pulse.open
        codes = spans["label"].astype(np.int64) << 8 | spans["modality"]
        waiting, oldest = sums(codes), _oldest(codes, spans["began_ns"], now_ns)
        names = self._pulse.names.stages
        for code in set(self._ended_stages) | set(codes.tolist()):
            entity = Entity(EntityKind.stage, stage=names[code >> 8], modality=modality_name(code & 0xFF))
            cell = cells.setdefault(entity, {})
            cell["requests_ended"] = float(self._ended_stages[code])
            cell["inflight"] = waiting.get(code, 0.0)
            cell["oldest_age_seconds"] = oldest.get(code, math.nan)
            cell["stage_rate"] = rates.get(code, 0.0) / seconds
            self._put_ranks(cell, ranks.get(code))

    def _put_ranks(
        self, cell: dict[str, float], ranked: tuple[int, Sequence[float] | np.ndarray] | None
    ) -> None:
        count, values = ranked if ranked is not None else (0, ())
        cell["latency_samples"] = float(count)
        enough = count >= self._min_samples
        for name, place in (("p50", 0), ("p95", 1), ("p99", 2)):
            cell[f"latency_{name}_seconds"] = float(values[place]) if enough else math.nan

    def _folded(self, endpoints: Rows) -> Rows:
        """Endpoint ids; those beyond the limit become `other`. Ids are handed out in order of appearance."""
        return np.where(endpoints > self._max_endpoints + OTHER, OTHER, endpoints)

    def _route_codes(self, rows: Rows) -> Codes:
        """endpoint << 20 | instance of each; those beyond the limit are `other` on `other`."""
        codes = (rows["endpoint"].astype(np.int64) << 20 | rows["instance"].astype(np.int64)).tolist()
        for code in codes:
            if len(self._routes) >= ROUTES_MAX:
                break
            self._routes.add(code)
        return np.array([code if code in self._routes else _OTHER_ROUTE for code in codes], np.int64)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Requests of the last minute, as each column needs them; rows of `_REQUEST_DTYPE`."""

    inflight: Rows
    begun: Rows
    """In the time of the rates."""
    judged: Rows
    """Ended with a duration that says something."""
    counted: Rows
    """Neither cancelled nor refused."""
    failed: Rows
    late: Rows
    """Ended in the time of the rates."""


def _parts(recent: Rows, inflight: Rows, now_ns: int) -> _Parts:
    outcome, since_ns = recent["outcome"], max(now_ns - RATE_NS, 0)
    is_wanted = (outcome != OUTCOME_CANCELLED) & (outcome != OUTCOME_REFUSED)
    is_lost = outcome == OUTCOME_LOST
    begun = np.concatenate([inflight, recent])
    return _Parts(
        inflight=inflight,
        begun=chosen(begun, begun["started_ns"] > since_ns),
        judged=chosen(recent, is_wanted & ~is_lost),
        counted=chosen(recent, is_wanted),
        failed=chosen(recent, is_lost | (outcome == OUTCOME_ERROR)),
        late=chosen(recent, recent["at_ns"] > since_ns),
    )


def _joined(parts: Sequence[Rows]) -> Rows:
    """One after the other; moved as plain bytes."""
    dtype = parts[0].dtype
    return np.concatenate([part.view(np.dtype((np.void, dtype.itemsize))) for part in parts]).view(dtype)


def _fill_costs(costs: RequestCosts, cells: Cells) -> None:
    """Only of entities that are in the frame already: both count the same requests, but not at one time."""
    for entity, cost in costs.by_entity.items():
        if entity in cells:
            cells[entity]["token_equivalent_latency_seconds"] = cost.seconds_each
    for endpoint, seconds in costs.penalties.by_endpoint.items():
        entity = Entity(EntityKind.endpoint, endpoint=endpoint)
        if entity in cells:
            cells[entity]["slo_penalty_seconds"] = seconds


def _codes(kind: EntityKind, rows: Rows) -> Codes:
    if kind is EntityKind.endpoint:
        return rows["endpoint"].astype(np.int64)
    if kind is EntityKind.instance:
        return rows["instance"].astype(np.int64)
    if kind is EntityKind.route:
        return rows["route"]
    return np.zeros(len(rows), np.int64)


def _namer(kind: EntityKind, names: NameTable) -> Callable[[int], Entity]:
    endpoints, instances = names.endpoints, names.instances
    if kind is EntityKind.endpoint:
        return lambda code: Entity(kind, endpoint=endpoints[code] or "unknown")
    if kind is EntityKind.instance:
        return lambda code: Entity(kind, instance=instances[code] or "unknown")
    if kind is EntityKind.route:
        return lambda code: Entity(
            kind,
            endpoint=endpoints[code >> 20] or "unknown",
            instance=instances[code & 0xFFFFF] or "unknown",
        )
    return lambda code: HOST


def _oldest(codes: Codes, since_ns: Rows, now_ns: int) -> dict[int, float]:
    """Age in seconds of the oldest per code."""
    order = np.argsort(since_ns, kind="stable")
    known, first = first_of_each(codes[order])
    return {
        code: age_seconds(since, now_ns)
        for code, since in zip(known.tolist(), since_ns[order][first].tolist(), strict=True)
    }
