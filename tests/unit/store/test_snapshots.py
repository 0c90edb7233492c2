# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a window's opening."""

from __future__ import annotations

from hotstage.store import snapshots


def test_the_first_snapshot_of_a_window_stays(store):
    first = snapshots.StoredSnapshot("w-1", 5, b'{"requests":[1]}')
    with store.database.transaction() as cursor:
        snapshots.save(cursor, first)
        snapshots.save(cursor, snapshots.StoredSnapshot("w-1", 9, b"{}"))
    assert snapshots.load(store.database, "w-1") == first
    assert snapshots.load(store.database, "w-2") is None
