# SPDX-License-Identifier: Apache-2.0
"""What requests cost lately: token equivalents by endpoint and instance, penalties. Values; pure.

The frame makes columns and heat of it, windows rank by it. Unknown is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from hotstage.frame.class_table import ClassRow
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.rolling import Floats, Rows
from hotstage.stages.request_class import MODALITIES_OF, Fingerprint

UNNAMED = "unknown"
"""How an endpoint or an instance is shown that nobody named."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the requests of the window that ended with a latency and said their tokens."""

    requests: int
    seconds: float
    """Of all of them together."""
    equivalents: float
    """Token equivalents of all of them together."""

    @property
    def seconds_each(self) -> float:
        """Token-equivalent latency, seconds per token equivalent."""
        return self.seconds / self.equivalents

    @property
    def equivalents_each(self) -> float:
        """Token equivalents of a request, mean."""
        return self.equivalents / self.requests

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests,
            self.seconds + other.seconds,
            self.equivalents + other.equivalents,
        )


@dataclass(frozen=True, slots=True)
class Penalties:
    """SLO penalty in seconds: of an endpoint the largest of its classes, of a modality the largest of the
    classes that have it.
    """

    by_endpoint: Mapping[str, float] = field(default_factory=dict)
    by_modality: Mapping[str, float] = field(default_factory=dict)

    def of(self, entity: Entity) -> float | None:
        """Of what an entity serves: its endpoint, else its modality; None where neither is known."""
        if entity.endpoint is not None:
            return self.by_endpoint.get(entity.endpoint)
        return self.by_modality.get(entity.modality or "")


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """`by_entity` has the host, endpoints, instances and routes that a request told its tokens of."""

    by_entity: Mapping[Entity, Cost] = field(default_factory=dict)
    penalties: Penalties = field(default_factory=Penalties)


def costs_by_entity(rows: Rows, endpoints: Sequence[str], instances: Sequence[str]) -> Mapping[Entity, Cost]:
    """Rows with `is_judged`, `seconds`, `equivalents`, and `endpoint`, `instance` as places in the names."""
    speaks = rows["is_judged"] & (rows["equivalents"] > 0)
    routes = (rows["endpoint"][speaks].astype(np.int64) * len(instances)) + rows["instance"][speaks]
    counts = np.bincount(routes)
    seconds, equivalents = (_summed(routes, rows[name][speaks]) for name in ("seconds", "equivalents"))
    found: dict[Entity, Cost] = {}
    for route in np.flatnonzero(counts).tolist():
        cost = Cost(int(counts[route]), float(seconds[route]), float(equivalents[route]))
        place, own = divmod(route, len(instances))
        endpoint, instance = endpoints[place] or UNNAMED, instances[own] or UNNAMED
        for entity in (
            Entity(EntityKind.route, endpoint=endpoint, instance=instance),
            Entity(EntityKind.endpoint, endpoint=endpoint),
            Entity(EntityKind.instance, instance=instance),
            HOST,
        ):
            known = found.get(entity)
            found[entity] = cost if known is None else known + cost
    return found


def penalties_of(endpoints: Iterable[ClassRow], fingerprints: Iterable[ClassRow]) -> Penalties:
    """Rows by endpoint and fingerprint, and by fingerprint alone."""
    by_endpoint: dict[str, float] = {}
    for row in endpoints:
        if row.endpoint is not None and row.slo_penalty_ms is not None:
            _keep_largest(by_endpoint, row.endpoint, row.slo_penalty_ms / 1e3)
    by_modality: dict[str, float] = {}
    for row in fingerprints:
        if row.slo_penalty_ms is not None:
            for modality in _MODALITY_NAMES[row.fingerprint]:
                _keep_largest(by_modality, modality, row.slo_penalty_ms / 1e3)
    return Penalties(by_endpoint, by_modality)


_MODALITY_NAMES: Mapping[str, tuple[str, ...]] = {
    name: tuple(each.name for each in MODALITIES_OF[name]) for name in get_args(Fingerprint)
}


def _keep_largest(known: dict[str, float], name: str, value: float) -> None:
    known[name] = max(value, known.get(name, 0.0))


def _summed(codes: Rows, values: Floats) -> Floats:
    return np.bincount(codes, weights=values).astype(np.float64, copy=False)
