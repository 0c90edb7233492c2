# SPDX-License-Identifier: Apache-2.0
"""The kill switch over HTTP: what it says, and an operator's order to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from hotstage.api.message import ApiError, Request, Response
from hotstage.clock import rfc3339
from hotstage.errors import StoreError
from hotstage.store import switches

if TYPE_CHECKING:
    from hotstage.api.routes import Api

Document = dict[str, Any]

MOVES_TOLD = 20


class SwitchOrder(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /v1/probes`."""

    state: Literal["off", "on"]
    reason: Annotated[str, Meta(max_length=500)] = ""


def no_probes() -> Document:
    """What an agent says that has no switch."""
    return {"state": "on", "actor": None, "reason": None, "since": None, "since_ns": None}


def no_switch(order: SwitchOrder, actor: str) -> Document:
    raise ApiError(503, "no_switch", "this agent has no switch", "ask the agent that holds the probes")


def state(api: Api, request: Request) -> Response:
    return Response(200, api.cell.encode(api.cell.view, {**api.sources.probes(), "moves": _moves(api)}))


def switch(api: Api, request: Request) -> Response:
    if not api.access.may_operate(request.peer, request.is_authorised):
        raise ApiError(
            403,
            "not_an_operator",
            f"{request.peer.address} may not switch the probes",
            "use the Unix socket as root or as an operator, or send the bearer token",
        )
    actor = request.peer.address if not request.is_authorised else f"token from {request.peer.address}"
    order = request.decode(SwitchOrder)
    return Response(200, api.cell.encode(api.cell.view, api.sources.switch_probes(order, actor)))


def _moves(api: Api) -> list[Document] | None:
    """The last ones, newest first; None while the database does not answer: the switch works without it."""
    try:
        found = switches.newest(api.store.database, MOVES_TOLD)
    except StoreError:
        return None
    return [
        {
            "state": each.state,
            "actor": each.actor,
            "reason": each.reason,
            "at": rfc3339(each.wall_ns),
            "at_ns": each.wall_ns,
        }
        for each in found
    ]
