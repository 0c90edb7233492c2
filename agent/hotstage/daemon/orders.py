# SPDX-License-Identifier: Apache-2.0
"""People's overrides, carried from the API's desk to the breakers at the beginning of a tick."""

from __future__ import annotations

from collections.abc import Callable

from hotstage.api.overrides import OverrideDesk, PendingOrder
from hotstage.breaker.record import OverrideAction, Transition
from hotstage.breaker.registry import BreakerSet
from hotstage.frame.entity import Entity

Repaired = Callable[[Entity], None]
"""Told the scope of a breaker that an operator resets: what stood until then is over."""


def carry_out(desk: OverrideDesk, breakers: BreakerSet, now_ns: int, repaired: Repaired) -> list[Transition]:
    """Answer every waiting order; the transitions they made. `now_ns` is CLOCK_MONOTONIC."""
    made: list[Transition] = []
    for pending in desk.take():
        try:
            move = _order(pending, breakers, now_ns)
        except KeyError:
            pending.refuse(f"no breaker is named {pending.name!r}", "list them with `hotstage breakers`")
            continue
        except ValueError as error:
            pending.refuse(str(error), "list those that there are with `hotstage breakers`")
            continue
        if move is not None:
            made.append(move)
        record = next(record for record in breakers.records if record.name == pending.name)
        if pending.order.action == "reset":
            repaired(record.scope)
        pending.done(record)
    return made


def _order(pending: PendingOrder, breakers: BreakerSet, now_ns: int) -> Transition | None:
    """KeyError: nothing to reset; ValueError: no breaker can be made for it."""
    order = pending.order
    if order.action == "reset":
        return breakers.reset(pending.name, actor=pending.actor, now_ns=now_ns)
    return breakers.override(
        pending.name,
        OverrideAction(order.action),
        ttl_ns=round((order.ttl_seconds or 0) * 1e9),
        actor=pending.actor,
        reason=order.reason,
        now_ns=now_ns,
    )
