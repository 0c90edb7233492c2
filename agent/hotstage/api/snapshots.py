# SPDX-License-Identifier: Apache-2.0
"""Snapshots over HTTP: of now, of the opening of a window or breaker, and the recovery plan of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hotstage.api.documents import Document
from hotstage.api.message import ApiError, Request, Response
from hotstage.clock import rfc3339
from hotstage.stages.recovery import recovery_plan
from hotstage.stages.snapshot_types import Snapshot
from hotstage.store import snapshots
from hotstage.store.snapshots import SnapshotCause, SnapshotRow, StoredSnapshot

if TYPE_CHECKING:
    from hotstage.api.routes import Api

_decode = msgspec.json.Decoder(Snapshot).decode


def now(api: Api, request: Request) -> Response:
    """Requests in flight as of the last tick."""
    return _live(api, msgspec.structs.asdict(api.sources.snapshot()))


def plan_now(api: Api, request: Request) -> Response:
    plan = recovery_plan(api.sources.snapshot(), api.recovery)
    return _live(api, msgspec.structs.asdict(plan))


def stored_list(api: Api, request: Request) -> Response:
    found = snapshots.newest(api.store.database, request.integer("limit", 100, 1, 1000))
    return _live(api, {"snapshots": [_row(each) for each in found]})


def stored_one(api: Api, request: Request) -> Response:
    """The snapshot with the id in the path, or that of the window with that id."""
    found = _stored(api, request.segments[2])
    windows = [cause.window_id for cause in found.causes if cause.window_id is not None]
    body = {
        "id": found.id,
        "window_id": windows[0] if windows else None,
        "causes": _causes(found.causes),
        "taken_at": rfc3339(found.wall_ns),
        "taken_at_ns": found.wall_ns,
        "snapshot": msgspec.Raw(found.document()),
    }
    return _live(api, body)


def stored_plan(api: Api, request: Request) -> Response:
    found = _stored(api, request.segments[2])
    try:
        taken = _decode(found.document())
    except msgspec.ValidationError as error:
        raise ApiError(
            409,
            "snapshot_too_old",
            f"snapshot {found.id} was stored by another version of hotstage: {error}",
            "read it as it is, without the plan",
        ) from error
    plan = recovery_plan(taken, api.recovery, found.id)
    return _live(api, msgspec.structs.asdict(plan))


def _stored(api: Api, name: str) -> StoredSnapshot:
    found = snapshots.load(api.store.database, name)
    if found is None:
        raise ApiError(
            404,
            "no_such_snapshot",
            "no such snapshot: it was not taken, is not stored yet, or has gone",
            "list them with /v1/snapshots",
        )
    return found


def _row(row: SnapshotRow) -> Document:
    return {
        "id": row.id,
        "taken_at": rfc3339(row.wall_ns),
        "taken_at_ns": row.wall_ns,
        "requests": row.requests,
        "threads": row.threads,
        "unclean": row.unclean,
        "bytes": row.bytes,
        "causes": _causes(row.causes),
    }


def _causes(causes: tuple[SnapshotCause, ...]) -> list[Document]:
    return [{"kind": each.kind, "name": each.name, "window_id": each.window_id} for each in causes]


def _live(api: Api, document: Document) -> Response:
    return Response(200, api.cell.encode(api.cell.view, document))
