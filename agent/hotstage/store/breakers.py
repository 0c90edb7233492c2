# SPDX-License-Identifier: Apache-2.0
"""Breaker records and their transitions ↔ rows; a record of another boot is moved onto this one's clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from hotstage.breaker.record import BreakerRecord, Transition
from hotstage.store.db import Cursor, Database

_decode_record = msgspec.json.Decoder(BreakerRecord).decode
_decode_transition = msgspec.json.Decoder(Transition).decode


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks, and the boot that the monotonic one counts from."""

    boot_id: str
    monotonic_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class StoredTransition:
    """A transition with its place in history and its wall time; its own `at_ns` is of the boot it happened
    in.
    """

    seq: int
    wall_ns: int
    transition: Transition


def save(cursor: Cursor, record: BreakerRecord, now: Moment) -> None:
    cursor.execute(
        "INSERT INTO breakers (name, boot_id, monotonic_ns, wall_ns, record) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET boot_id = excluded.boot_id, monotonic_ns = excluded.monotonic_ns,"
        " wall_ns = excluded.wall_ns, record = excluded.record",
        (record.name, now.boot_id, now.monotonic_ns, now.wall_ns, msgspec.json.encode(record)),
    )


def append(cursor: Cursor, transition: Transition, wall_offset_ns: int) -> None:
    cursor.execute(
        "INSERT INTO transitions (breaker, wall_ns, body) VALUES (?, ?, ?)",
        (transition.name, transition.at_ns + wall_offset_ns, msgspec.json.encode(transition)),
    )


def load_all(database: Database, now: Moment) -> list[BreakerRecord]:
    """Every breaker, its times on this boot's CLOCK_MONOTONIC: negative where they precede the boot.

    Within one boot the monotonic times hold as they are. After a reboot wall time tells how long ago they
    were, so that a cool-down or an override's TTL went on running while the host was down.
    """
    rows = database.read("SELECT boot_id, monotonic_ns, wall_ns, record FROM breakers ORDER BY name")
    records = []
    for boot_id, monotonic_ns, wall_ns, body in rows:
        assert isinstance(monotonic_ns, int) and isinstance(wall_ns, int) and isinstance(body, bytes)
        same_boot = boot_id == now.boot_id
        moved_ns = 0 if same_boot else now.monotonic_ns - max(0, now.wall_ns - wall_ns) - monotonic_ns
        records.append(_moved(_decode_record(body), moved_ns))
    return records


def newest_transitions(database: Database, limit: int, breaker: str | None = None) -> list[StoredTransition]:
    """The last transitions, newest first, of one breaker or of all."""
    rows = database.read(
        "SELECT seq, wall_ns, body FROM transitions WHERE breaker = coalesce(?, breaker)"
        " ORDER BY seq DESC LIMIT ?",
        (breaker, limit),
    )
    return [StoredTransition(seq, wall, _decode_transition(body)) for seq, wall, body in rows]  # type: ignore[arg-type]


def delete_transitions(cursor: Cursor, before_wall_ns: int) -> int:
    return cursor.execute("DELETE FROM transitions WHERE wall_ns < ?", (before_wall_ns,)).rowcount


def _moved(record: BreakerRecord, by_ns: int) -> BreakerRecord:
    if by_ns == 0:
        return record
    override = record.override
    if override is not None:
        override = replace(override, set_ns=override.set_ns + by_ns, until_ns=override.until_ns + by_ns)
    clear_since_ns = record.clear_since_ns
    return replace(
        record,
        since_ns=record.since_ns + by_ns,
        updated_ns=record.updated_ns + by_ns,
        clear_since_ns=None if clear_since_ns is None else clear_since_ns + by_ns,
        override=override,
        transitions=tuple(replace(each, at_ns=each.at_ns + by_ns) for each in record.transitions),
    )
