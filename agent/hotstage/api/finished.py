# SPDX-License-Identifier: Apache-2.0
"""Finished requests over HTTP: the list, and the waterfall of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

import msgspec

from hotstage.api.message import ApiError, Request, Response
from hotstage.api.requests import Filter, Order
from hotstage.stages.stage import Modality
from hotstage.stages.waterfall import OUTCOMES

if TYPE_CHECKING:
    from hotstage.api.routes import Api

_ANY = "any"
_NAME_MAX = 64


def requests(api: Api, request: Request) -> Response:
    """The list: what ended after a number, or the slowest that are kept."""
    modality = request.choice("modality", _ANY, (_ANY, *Modality.__members__))
    outcome = request.choice("outcome", _ANY, (_ANY, *OUTCOMES))
    wanted = Filter(
        stage=_name(request, "stage"),
        modality=None if modality == _ANY else modality,
        endpoint=_name(request, "endpoint"),
        instance=_name(request, "instance"),
        outcome=None if outcome == _ANY else outcome,
        order=cast("Order", request.choice("order", "ended", get_args(Order))),
    )
    after, limit = request.integer("after", 0, 0, 1 << 62), request.integer("limit", 2000, 1, 4000)
    found = api.sources.requests(after, limit, wanted)
    return Response(200, api.cell.encode(api.cell.view, msgspec.structs.asdict(found)))


def waterfall(api: Api, request: Request) -> Response:
    """Of the newest request with the id in the path, else of the one with that number."""
    found = api.sources.waterfall(request.segments[2])
    if found is None:
        raise ApiError(
            404,
            "no_such_request",
            "no such request has finished, or it is no longer among the last ones that are kept",
            "list them with /v1/requests; those in flight with /v1/snapshot",
        )
    return Response(200, api.cell.encode(api.cell.view, msgspec.structs.asdict(found)))


def _name(request: Request, parameter: str) -> str | None:
    """A name to filter by, None where none is given. Raises ApiError 400."""
    name = request.query.get(parameter)
    if name is None:
        return None
    if not (0 < len(name) <= _NAME_MAX and name.isprintable()):
        raise ApiError(
            400, "bad_parameter", f"{parameter} is empty, too long or no text", "see /v1/requests for names"
        )
    return name
