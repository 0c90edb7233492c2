# SPDX-License-Identifier: Apache-2.0
"""What is forgotten, and when: by age, then by size, oldest first.

Open windows and breaker states always stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotstage.store import breakers, outbox, snapshots, switches, windows
from hotstage.store.db import Database

OUTBOX_KEEP_NS = 72 * 3600 * 1_000_000_000
"""As long as the notifier would try: an event that nobody fetched for three days helps nobody."""

_ROWS_A_ROUND = 64
_VACUUM_PAGES = 4096


@dataclass(frozen=True, slots=True)
class Pruned:
    """Rows that went; `events_lost` were never acknowledged by a notifier."""

    windows: int
    transitions: int
    events_lost: int


def prune(database: Database, now_wall_ns: int, keep_ns: int, max_bytes: int) -> Pruned:
    """Apply both limits and give the pages back. Raises StoreError; what went before it stays gone."""
    with database.transaction(settles=True) as cursor:
        gone = windows.delete_closed(cursor, now_wall_ns - keep_ns)
        moves = breakers.delete_transitions(cursor, now_wall_ns - keep_ns)
        switches.delete_before(cursor, now_wall_ns - keep_ns)
        snapshots.delete_before(cursor, now_wall_ns - keep_ns)
        lost = outbox.expire(cursor, now_wall_ns - OUTBOX_KEEP_NS)
        cursor.execute("DELETE FROM runs WHERE started_wall_ns < ?", (now_wall_ns - keep_ns,))
    while database.size_bytes() > max_bytes:
        with database.transaction(settles=True) as cursor:
            taken = snapshots.delete_oldest(cursor, _ROWS_A_ROUND)
            went = windows.delete_oldest(cursor, _ROWS_A_ROUND)
            moved = cursor.execute(
                "DELETE FROM transitions WHERE seq IN (SELECT seq FROM transitions ORDER BY seq LIMIT ?)",
                (_ROWS_A_ROUND,),
            ).rowcount
        gone, moves = gone + went, moves + moved
        if went == moved == taken == 0:
            break
    database.give_back_pages(_VACUUM_PAGES)
    return Pruned(gone, moves, lost)
