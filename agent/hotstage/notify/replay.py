# SPDX-License-Identifier: Apache-2.0
"""Deliveries put into the queue again, by another process than the notifier's, whether that runs or not.

An event is never queued without what followed it in its subject: sent alone, an old `opened` would be the
last thing a receiver hears.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hotstage.errors import PreflightError, PrivilegeError
from hotstage.notify.db import FILE_NAME
from hotstage.notify.run_clock import kept
from hotstage.store.db import Database


@dataclass(frozen=True, slots=True)
class Selection:
    """Which ended deliveries: dead letters, those of events made since a wall time, or one event's."""

    what: Literal["dead", "since", "id"]
    since_wall_ns: int = 0
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Of one destination: deliveries that were asked for, those queued with them because they came later in
    the same subject, those that waited for a retry and are now tried at once, and whether it was disabled.
    """

    name: str
    chosen: int
    followers: int
    hurried: int
    is_enabled_again: bool


@contextmanager
def beside(directory: Path) -> Iterator[Database]:
    """The notifier's database, beside the notifier. Raises HotstageError if there is none or it is closed
    to this user.
    """
    path = directory / FILE_NAME
    if directory.exists() and not os.access(directory, os.X_OK):
        raise PrivilegeError(f"{path} is closed to this user", remedy="run as root or as the notifier's user")
    if not path.exists():
        raise PreflightError(f"there is no {path}", remedy="start the notifier once: it makes its database")
    if not os.access(path, os.R_OK | os.W_OK):
        raise PrivilegeError(f"{path} is closed to this user", remedy="run as root or as the notifier's user")
    database = Database(path, "hotstage.notify.migrations")
    try:
        yield database
    finally:
        database.close()


def replay(database: Database, names: Sequence[str], chosen: Selection, now_ns: int) -> list[Replayed]:
    """Queue what is chosen for each of the destinations, and use it again if it had been disabled.

    Same webhook-id as ever. All of one destination or nothing. Raises StoreError.
    """
    return [_replay(database, name, chosen, now_ns) for name in names]


def _replay(database: Database, name: str, chosen: Selection, now_ns: int) -> Replayed:
    condition, value = {
        "dead": ("d.state = 'dead' AND ? IS NOT NULL", 0),
        "since": ("e.created_ns >= ?", chosen.since_wall_ns),
        "id": ("e.id = ?", chosen.event_id),
    }[chosen.what]
    run_ns = kept(database)
    with database.transaction() as cursor:
        # Read before anything is queued: what is queued is no longer an ended delivery.
        firsts = cursor.execute(
            "SELECT d.subject, min(d.number), count(*) FROM deliveries d JOIN events e USING (number)"  # noqa: S608
            f" WHERE d.destination = ? AND d.state != 'pending' AND {condition} GROUP BY d.subject",
            (name, value),
        ).fetchall()
        hurried = cursor.execute(
            "UPDATE deliveries SET due_run_ns = 0 WHERE destination = ? AND state = 'pending'"
            " AND due_run_ns > ?",
            (name, run_ns),
        ).rowcount
        queued = cursor.executemany(
            "UPDATE deliveries SET state = 'pending', attempts = 0, since_wall_ns = ?, since_run_ns = ?,"
            " due_run_ns = 0, ended_wall_ns = NULL, error = NULL"
            " WHERE destination = ? AND state != 'pending' AND subject = ? AND number >= ?",
            [(now_ns, run_ns, name, subject, number) for subject, number, _ in firsts],
        ).rowcount
        enabled = cursor.execute(
            "UPDATE destinations SET disabled_error = NULL, disabled_wall_ns = NULL"
            " WHERE name = ? AND disabled_error IS NOT NULL",
            (name,),
        ).rowcount
    asked = sum(count for _, _, count in firsts)
    return Replayed(name, asked, max(0, queued) - asked, hurried, enabled > 0)
