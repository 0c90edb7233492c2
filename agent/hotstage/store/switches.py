# SPDX-License-Identifier: Apache-2.0
"""The moves of the kill switch ↔ rows: who took all probes away or brought them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotstage.store.db import Cursor, Database


@dataclass(frozen=True, slots=True)
class SwitchMove:
    """`wall_ns` is when it was done; `reason` None where none was given."""

    wall_ns: int
    state: Literal["off", "on"]
    actor: str
    reason: str | None


def append(cursor: Cursor, move: SwitchMove) -> None:
    cursor.execute(
        "INSERT INTO switches (wall_ns, state, actor, reason) VALUES (?, ?, ?, ?)",
        (move.wall_ns, move.state, move.actor, move.reason),
    )


def newest(database: Database, limit: int) -> list[SwitchMove]:
    """The last moves, newest first."""
    rows = database.read(
        "SELECT wall_ns, state, actor, reason FROM switches ORDER BY seq DESC LIMIT ?", (limit,)
    )
    return [SwitchMove(wall_ns, state, actor, reason) for wall_ns, state, actor, reason in rows]  # type: ignore[arg-type]


def delete_before(cursor: Cursor, before_wall_ns: int) -> int:
    return cursor.execute("DELETE FROM switches WHERE wall_ns < ?", (before_wall_ns,)).rowcount
