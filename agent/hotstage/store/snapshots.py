# SPDX-License-Identifier: Apache-2.0
"""Snapshots ↔ rows: what was in flight when windows and breakers opened, as the JSON that the API serves.

Bounded by count, age and bytes whenever one is added. It neither takes nor reads a snapshot's contents.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Literal

from hotstage.errors import StoreError
from hotstage.store.db import Cursor, Database, Row

CauseKind = Literal["window", "breaker"]

PACK_FROM_BYTES = 16 << 10
_PACK_LEVEL = 3
_BODY_LIMIT_BYTES = 64 << 20
"""Of one body, unpacked: more than the largest that is ever made."""


@dataclass(frozen=True, slots=True)
class SnapshotCause:
    """What opened: `name` is the window's id or the breaker's name."""

    kind: CauseKind
    name: str
    window_id: str | None


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """One snapshot; `body` is JSON, zlib-packed where `is_packed`. A count is None where nobody counted."""

    id: str
    wall_ns: int
    body: bytes
    is_packed: bool
    requests: int | None
    threads: int | None
    unclean: int | None
    causes: tuple[SnapshotCause, ...]

    def document(self) -> bytes:
        """The body as JSON. Raises StoreError for one that cannot be unpacked."""
        return unpacked(self.id, self.body) if self.is_packed else self.body


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A stored snapshot without its body; `bytes` is what that takes."""

    id: str
    wall_ns: int
    requests: int | None
    threads: int | None
    unclean: int | None
    bytes: int
    causes: tuple[SnapshotCause, ...]


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """How much is kept."""

    count: int
    bytes: int
    keep_ns: int


def packed(body: bytes) -> tuple[bytes, bool]:
    """(the body as it is stored, whether it is packed): small ones stay readable."""
    return (body, False) if len(body) < PACK_FROM_BYTES else (zlib.compress(body, _PACK_LEVEL), True)


def unpacked(snapshot_id: str, body: bytes) -> bytes:
    """The JSON of a packed body; never more than 64 MiB of it. Raises StoreError."""
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(body, _BODY_LIMIT_BYTES)
    except zlib.error as error:
        raise StoreError(
            f"snapshot {snapshot_id} cannot be unpacked: {error}", remedy="the database is damaged"
        ) from error
    if not unpacker.eof:
        raise StoreError(
            f"snapshot {snapshot_id} is cut or larger than {_BODY_LIMIT_BYTES} bytes",
            remedy="the database is damaged",
        )
    return found


def save(cursor: Cursor, snapshot: StoredSnapshot) -> None:
    """Add one. A window keeps the first snapshot of its opening; a cause that has one is left out."""
    cursor.execute(
        "INSERT INTO snapshots (id, wall_ns, requests, threads, unclean, encoding, bytes, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (
            snapshot.id,
            snapshot.wall_ns,
            snapshot.requests,
            snapshot.threads,
            snapshot.unclean,
            "zlib" if snapshot.is_packed else "json",
            len(snapshot.body),
            snapshot.body,
        ),
    )
    cursor.executemany(
        "INSERT INTO snapshot_causes (snapshot_id, kind, name, window_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [(snapshot.id, cause.kind, cause.name, cause.window_id) for cause in snapshot.causes],
    )


def prune(cursor: Cursor, now_wall_ns: int, limits: SnapshotLimits) -> int:
    """Forget what is too old, too many or too large, oldest first. How many went."""
    return cursor.execute(
        "DELETE FROM snapshots WHERE id IN (SELECT id FROM ("
        "  SELECT id, wall_ns, row_number() OVER newest AS place, sum(bytes) OVER newest AS held"
        "  FROM snapshots WINDOW newest AS (ORDER BY wall_ns DESC, id DESC)"
        ") WHERE wall_ns < ? OR place > ? OR held > ?)",
        (now_wall_ns - limits.keep_ns, limits.count, limits.bytes),
    ).rowcount


def delete_before(cursor: Cursor, before_wall_ns: int) -> int:
    """Forget what was taken before a wall time. How many went."""
    return cursor.execute("DELETE FROM snapshots WHERE wall_ns < ?", (before_wall_ns,)).rowcount


def delete_oldest(cursor: Cursor, count: int) -> int:
    """Forget the `count` oldest. How many went."""
    return cursor.execute(
        "DELETE FROM snapshots WHERE id IN (SELECT id FROM snapshots ORDER BY wall_ns, id LIMIT ?)", (count,)
    ).rowcount


def forget_windows(cursor: Cursor) -> None:
    """Take away what only windows caused that are gone.

    The newest snapshot stays: its window may be on its way to the disk still.
    """
    cursor.execute(
        "DELETE FROM snapshots WHERE id != (SELECT id FROM snapshots ORDER BY wall_ns DESC, id DESC LIMIT 1)"
        " AND NOT EXISTS (SELECT 1 FROM snapshot_causes WHERE snapshot_id = snapshots.id"
        "  AND (kind != 'window' OR name IN (SELECT id FROM windows)))"
    )


def load(database: Database, name: str) -> StoredSnapshot | None:
    """The snapshot of this id, or of the opening of the window of this id."""
    rows = database.read(
        "SELECT id, wall_ns, body, encoding, requests, threads, unclean FROM snapshots WHERE id = ?"
        " OR id = (SELECT snapshot_id FROM snapshot_causes WHERE kind = 'window' AND name = ?) LIMIT 1",
        (name, name),
    )
    if not rows:
        return None
    found, wall_ns, body, encoding, requests, threads, unclean = rows[0]
    assert isinstance(found, str) and isinstance(wall_ns, int) and isinstance(body, bytes)
    return StoredSnapshot(
        found,
        wall_ns,
        body,
        encoding == "zlib",
        _count(requests),
        _count(threads),
        _count(unclean),
        _causes(database, (found,)).get(found, ()),
    )


def newest(database: Database, limit: int) -> list[SnapshotRow]:
    """Newest first, without bodies."""
    rows = database.read(
        "SELECT id, wall_ns, requests, threads, unclean, bytes FROM snapshots"
        " ORDER BY wall_ns DESC, id DESC LIMIT ?",
        (limit,),
    )
    causes = _causes(database, tuple(str(row[0]) for row in rows))
    return [_row(row, causes.get(str(row[0]), ())) for row in rows]


def _row(row: Row, causes: tuple[SnapshotCause, ...]) -> SnapshotRow:
    found, wall_ns, requests, threads, unclean, size = row
    assert isinstance(found, str) and isinstance(wall_ns, int) and isinstance(size, int)
    return SnapshotRow(found, wall_ns, _count(requests), _count(threads), _count(unclean), size, causes)


def _causes(database: Database, ids: tuple[str, ...]) -> dict[str, tuple[SnapshotCause, ...]]:
    rows = database.read(
        "SELECT snapshot_id, kind, name, window_id FROM snapshot_causes"
        " WHERE snapshot_id IN (SELECT value FROM json_each(?)) ORDER BY rowid",
        (json.dumps(ids),),
    )
    found: dict[str, tuple[SnapshotCause, ...]] = {}
    for snapshot_id, kind, name, window_id in rows:
        cause = SnapshotCause(kind, name, window_id)  # type: ignore[arg-type]
        found[str(snapshot_id)] = (*found.get(str(snapshot_id), ()), cause)
    return found


def _count(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value
