# SPDX-License-Identifier: Apache-2.0
"""The notifier's two routes: rows to take over, and the word that they are held. On the Unix socket alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hotstage.api.message import ApiError, Request, Response
from hotstage.store import outbox
from hotstage.store.deliveries import DestinationReport, NotifierReport

if TYPE_CHECKING:
    from hotstage.api.routes import Api

MAX_WAIT_SECONDS = 30


class Acknowledgement(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /v1/outbox/ack`: all up to `seq` of this store is in the notifier's own database."""

    seq: Annotated[int, Meta(ge=0, le=1 << 62)]
    store: str | None = None
    destinations: Annotated[list[DestinationReport], Meta(max_length=256)] | None = None


def rows(api: Api, request: Request) -> Response:
    after = request.integer("after", 0, 0, 1 << 62)
    limit = request.integer("limit", 100, 1, 1000)
    wait = request.number("wait", 0.0, 0.0, MAX_WAIT_SECONDS)
    until_ns = api.clock.monotonic_ns() + round(wait * 1e9)
    while True:
        seen = api.outbox_bell.count
        found = outbox.after(api.store.database, after, limit)
        left = (until_ns - api.clock.monotonic_ns()) / 1e9
        if found or left <= 0 or not api.outbox_bell.wait(seen, left):
            break
    body = {"store": api.store.store_id, "rows": [_row(row) for row in found]}
    return Response(200, msgspec.json.encode(body))


def acknowledge(api: Api, request: Request) -> Response:
    said = request.decode(Acknowledgement)
    if said.store is not None and said.store != api.store.store_id:
        raise ApiError(409, "another_store", "these numbers are of another store", "start again from after=0")
    if said.destinations is not None:
        api.deliveries.put(NotifierReport(api.clock.monotonic_ns(), tuple(said.destinations)))
    removed = outbox.acknowledge(api.store.database, said.seq) if said.seq else 0
    return Response(200, msgspec.json.encode({"acknowledged": removed}))


def _row(row: outbox.OutboxRow) -> dict[str, Any]:
    event = row.event
    return {
        "seq": row.seq,
        "id": event.id,
        "type": event.type,
        "subject": event.subject,
        "created_ns": event.created_ns,
        "body": msgspec.Raw(event.body),
    }
