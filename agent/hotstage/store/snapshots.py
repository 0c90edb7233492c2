# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the requests in flight, one for each window that asked for it, as the JSON that the API
serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotstage.store.db import Cursor, Database


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """What was in flight when window `window_id` opened; `body` is JSON."""

    window_id: str
    wall_ns: int
    body: bytes


def save(cursor: Cursor, snapshot: StoredSnapshot) -> None:
    """The first snapshot of a window is the telling one and stays."""
    cursor.execute(
        "INSERT INTO snapshots (window_id, wall_ns, body) VALUES (?, ?, ?)"
        " ON CONFLICT (window_id) DO NOTHING",
        (snapshot.window_id, snapshot.wall_ns, snapshot.body),
    )


def load(database: Database, window_id: str) -> StoredSnapshot | None:
    rows = database.read("SELECT window_id, wall_ns, body FROM snapshots WHERE window_id = ?", (window_id,))
    return StoredSnapshot(*rows[0]) if rows else None  # type: ignore[arg-type]
