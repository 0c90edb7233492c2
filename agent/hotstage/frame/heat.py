# SPDX-License-Identifier: Apache-2.0
"""Endpoint heat: request rate × the endpoint's weight × what a request weighs. Pure.

`[frame] heat_weight` says the last factor:

- `requests`: 1.
- `token_equivalents`: mean token equivalents of a request of the route over the latency window, or, where
  none of them said its tokens, of the endpoint on all instances. Unknown where none said; a route without
  requests has heat 0 all the same.
- `slo_penalty`: 1 + SLO penalty of the endpoint in seconds: within its baselines an endpoint is as hot as its
  rate. A penalty that is not known yet (below `quantile_min_samples`) counts as none.

The heat of an endpoint and of an instance is the sum over its routes, unknown where one of them is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hotstage.config.settings import FrameConfig
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.request_costs import RequestCosts

BASIS: Mapping[str, str] = {
    "requests": "requests/s × weight",
    "token_equivalents": "requests/s × weight × token equivalents of a request",
    "slo_penalty": "requests/s × weight × (1 + SLO penalty of the endpoint in seconds)",
}
"""`heat_weight` → what heat is, in words."""


def fill_heat(config: FrameConfig, costs: RequestCosts, cells: dict[Entity, dict[str, float]]) -> None:
    """Column `endpoint_heat` of routes from their `request_rate`, and its sums."""
    for route in [entity for entity in cells if entity.kind is EntityKind.route]:
        rate = cells[route]["request_rate"] * config.heat_weights.get(route.endpoint or "", 1.0)
        heat = rate * _weight(config.heat_weight, route, costs) if rate else 0.0
        cells[route]["endpoint_heat"] = heat
        for whole in (
            Entity(EntityKind.endpoint, endpoint=route.endpoint),
            Entity(EntityKind.instance, instance=route.instance),
        ):
            cell = cells.setdefault(whole, {})
            cell["endpoint_heat"] = cell.get("endpoint_heat", 0.0) + heat


def _weight(heat_weight: str, route: Entity, costs: RequestCosts) -> float:
    """Of a request of the route; NaN: unknown."""
    if heat_weight == "slo_penalty":
        return 1.0 + costs.penalties.by_endpoint.get(route.endpoint or "", 0.0)
    if heat_weight == "token_equivalents":
        whole = Entity(EntityKind.endpoint, endpoint=route.endpoint)
        cost = costs.by_entity.get(route) or costs.by_entity.get(whole)
        return math.nan if cost is None else cost.equivalents_each
    return 1.0
