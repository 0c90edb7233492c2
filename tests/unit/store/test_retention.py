# SPDX-License-Identifier: Apache-2.0
"""Old rows go by age and by size; what is open or in force stays."""

from __future__ import annotations

from hotstage.store import breakers, outbox, snapshots, windows
from hotstage.store.retention import OUTBOX_KEEP_NS, Pruned, prune
from hotstage.store.store import Changes

NO_LIMIT = 1 << 40


def test_rows_older_than_the_limit_go(store, make):
    closed = {"old": 7_000, "new": 90_000, "live": None}
    store.commit(
        [
            Changes(
                0,
                0,
                windows=tuple(make.window(name, closed_ns=at) for name, at in closed.items()),
                breakers=(make.breaker(),),
                transitions=(make.transition(at_ns=7_000), make.transition(at_ns=90_000)),
            )
        ]
    )
    assert prune(store.database, 100_000, 50_000, NO_LIMIT) == Pruned(1, 1, 0)
    kept = windows.newest(store.database, include_open=True, limit=9)
    assert {stored.window.id for stored in kept} == {"new", "live"}
    assert len(breakers.newest_transitions(store.database, 9)) == 1
    assert store.restored_breakers() == [make.breaker()]


def test_unfetched_events_go_after_three_days_and_are_counted_as_lost(store, make):
    now = OUTBOX_KEEP_NS + 1_000
    events = (make.event("old", created_ns=999), make.event("young", created_ns=1_001))
    store.commit([Changes(0, 0, events=events)])
    assert prune(store.database, now, 2 * now, NO_LIMIT).events_lost == 1
    assert [row.event.id for row in outbox.after(store.database, 0, 9)] == ["young"]


def test_a_file_too_large_sheds_its_oldest_windows_until_it_fits_and_shrinks(store, make):
    note = "x" * 20_000
    for index in range(200):
        padded = make.window(f"w{index:03}", opened_ns=index, closed_ns=index + 1, labels={"note": note})
        store.commit([Changes(0, 0, windows=(padded,))])
    store.commit([Changes(0, 0, windows=(make.window("live", opened_ns=0, labels={"note": note}),))])
    store.database.maintain("PRAGMA wal_checkpoint(TRUNCATE)")
    file = store.directory / "hotstage.db"
    before = file.stat().st_size
    limit = 2 << 20
    prune(store.database, 0, 0, limit)
    assert store.database.size_bytes() <= limit
    assert file.stat().st_size < before
    assert windows.load(store.database, "live") is not None


def test_snapshots_go_with_their_time_and_with_a_file_too_large(store):
    def keep(name, wall_ns, size=2):
        body = bytes(size)
        cause = snapshots.SnapshotCause("breaker", name, None)
        with store.database.transaction() as cursor:
            snapshots.save(
                cursor, snapshots.StoredSnapshot(name, wall_ns, body, False, None, None, None, (cause,))
            )

    def names():
        return {row.id for row in snapshots.newest(store.database, 999)}

    keep("old", 7_000)
    keep("new", 90_000)
    prune(store.database, 100_000, 50_000, NO_LIMIT)
    assert names() == {"new"}
    for number in range(100):
        keep(f"big-{number:03}", 90_001 + number, size=40_000)
    prune(store.database, 100_000, 50_000, 2 << 20)
    assert store.database.size_bytes() <= 2 << 20
    assert "big-099" in names()
    assert "new" not in names()
