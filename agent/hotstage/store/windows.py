# SPDX-License-Identifier: Apache-2.0
"""Anomaly windows ↔ rows. A stored window keeps the monotonic times it was made with, and what dates them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from hotstage.store import snapshots
from hotstage.store.db import Cursor, Database, Row
from hotstage.windows.window import AnomalyWindow

State = Literal["open", "closed", "interrupted"]

_decode = msgspec.json.Decoder(AnomalyWindow).decode


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """`wall_offset_ns` added to the window's monotonic times gives wall time, whatever boot they are of."""

    window: AnomalyWindow
    state: State
    wall_offset_ns: int


def save(cursor: Cursor, window: AnomalyWindow, wall_offset_ns: int, state: State | None = None) -> None:
    """The window as it is now; a later state of the same id replaces the earlier one."""
    closed_ns = None if window.closed_ns is None else window.closed_ns + wall_offset_ns
    cursor.execute(
        "INSERT INTO windows (id, kind, severity, state, opened_wall_ns, updated_wall_ns, closed_wall_ns,"
        " wall_offset_ns, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, severity = excluded.severity,"
        " state = excluded.state,"
        " updated_wall_ns = excluded.updated_wall_ns, closed_wall_ns = excluded.closed_wall_ns,"
        " wall_offset_ns = excluded.wall_offset_ns, body = excluded.body",
        (
            window.id,
            window.kind,
            window.severity.name,
            state or ("open" if closed_ns is None else "closed"),
            window.opened_ns + wall_offset_ns,
            window.updated_ns + wall_offset_ns,
            closed_ns,
            wall_offset_ns,
            msgspec.json.encode(window),
        ),
    )


def interrupt_open(cursor: Cursor) -> list[StoredWindow]:
    """Close what an earlier run left open, at the last time it was seen; the windows that were closed so."""
    rows = cursor.execute(
        "SELECT state, wall_offset_ns, body FROM windows WHERE state = 'open' ORDER BY opened_wall_ns"
    )
    interrupted = []
    for stored in [_stored(row) for row in rows.fetchall()]:
        window = replace(stored.window, closed_ns=stored.window.updated_ns)
        save(cursor, window, stored.wall_offset_ns, "interrupted")
        interrupted.append(StoredWindow(window, "interrupted", stored.wall_offset_ns))
    return interrupted


def load(database: Database, window_id: str) -> StoredWindow | None:
    rows = database.read("SELECT state, wall_offset_ns, body FROM windows WHERE id = ?", (window_id,))
    return _stored(rows[0]) if rows else None


def newest(database: Database, *, include_open: bool, limit: int) -> list[StoredWindow]:
    """Closed and interrupted windows, newest first; with `include_open` the open ones too."""
    rows = database.read(
        "SELECT state, wall_offset_ns, body FROM windows WHERE state != 'open' OR ?"
        " ORDER BY opened_wall_ns DESC, id LIMIT ?",
        (include_open, limit),
    )
    return [_stored(row) for row in rows]


def delete_closed(cursor: Cursor, before_wall_ns: int) -> int:
    """Forget windows that closed before a wall time, and their snapshots. How many went."""
    gone = cursor.execute("DELETE FROM windows WHERE closed_wall_ns < ?", (before_wall_ns,)).rowcount
    snapshots.forget_windows(cursor)
    return gone


def delete_oldest(cursor: Cursor, count: int) -> int:
    """Forget the `count` closed windows that opened first, and their snapshots. How many went."""
    gone = cursor.execute(
        "DELETE FROM windows WHERE id IN"
        " (SELECT id FROM windows WHERE state != 'open' ORDER BY opened_wall_ns LIMIT ?)",
        (count,),
    ).rowcount
    snapshots.forget_windows(cursor)
    return gone


def _stored(row: Row) -> StoredWindow:
    state, wall_offset_ns, body = row
    assert isinstance(body, bytes) and isinstance(wall_offset_ns, int)
    return StoredWindow(_decode(body), state, wall_offset_ns)  # type: ignore[arg-type]
