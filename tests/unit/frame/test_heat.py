# SPDX-License-Identifier: Apache-2.0
"""Heat under each `heat_weight`, against sums made by hand."""

from __future__ import annotations

import math
from typing import get_args

import msgspec

from hotstage.config.settings import FrameConfig
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.heat import BASIS, fill_heat
from hotstage.frame.request_costs import Cost, Penalties, RequestCosts


def route(endpoint, instance):
    return Entity(EntityKind.route, endpoint=endpoint, instance=instance)


CHAT_0, CHAT_1, IDLE = route("/chat", "i-0"), route("/chat", "i-1"), route("/idle", "i-1")
CHAT = Entity(EntityKind.endpoint, endpoint="/chat")
I0, I1 = (Entity(EntityKind.instance, instance=name) for name in ("i-0", "i-1"))
COSTS = RequestCosts(
    {CHAT_0: Cost(4, 2.0, 400.0), CHAT: Cost(4, 2.0, 400.0)}, Penalties(by_endpoint={"/chat": 0.5})
)


def heats(heat_weight, costs=COSTS, **config):
    cells = {
        HOST: {},
        CHAT_0: {"request_rate": 2.0},
        CHAT_1: {"request_rate": 1.0},
        IDLE: {"request_rate": 0.0},
    }
    fill_heat(FrameConfig(heat_weight=heat_weight, **config), costs, cells)
    return {entity: cell.get("endpoint_heat") for entity, cell in cells.items()}


def test_a_request_weighs_one():
    found = heats("requests", heat_weights={"/chat": 3.0})
    assert (found[CHAT_0], found[CHAT_1], found[IDLE]) == (6.0, 3.0, 0.0)
    assert (found[CHAT], found[I0], found[I1], found[HOST]) == (9.0, 6.0, 3.0, None)


def test_a_request_weighs_its_token_equivalents_or_those_of_its_endpoint():
    found = heats("token_equivalents", heat_weights={"/chat": 3.0})
    assert (found[CHAT_0], found[CHAT_1]) == (600.0, 300.0)
    assert (found[IDLE], found[I1]) == (0.0, 300.0), "no requests: no heat, whatever they would weigh"


def test_heat_by_tokens_is_unknown_where_nobody_says_them_and_so_is_the_sum():
    found = heats("token_equivalents", RequestCosts())
    assert math.isnan(found[CHAT_0]) and math.isnan(found[CHAT]) and math.isnan(found[I1])
    assert found[IDLE] == 0.0


def test_a_penalty_adds_to_the_weight_of_a_request_and_none_takes_away():
    found = heats("slo_penalty")
    assert (found[CHAT_0], found[CHAT_1]) == (3.0, 1.5)
    assert heats("slo_penalty", RequestCosts())[CHAT] == 3.0


def test_every_weight_that_may_be_chosen_has_its_words():
    (field,) = [each for each in msgspec.structs.fields(FrameConfig) if each.name == "heat_weight"]
    assert set(get_args(get_args(field.type)[0])) == set(BASIS)
