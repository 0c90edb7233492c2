# SPDX-License-Identifier: Apache-2.0
"""Snapshots of openings: found by their own id and by their window's, bounded, packed when they are big."""

from __future__ import annotations

import zlib
from dataclasses import replace
from importlib.resources import files

import pytest

from hotstage.errors import StoreError
from hotstage.store import snapshots
from hotstage.store.db import Database
from hotstage.store.snapshots import SnapshotCause, SnapshotLimits, StoredSnapshot

NO_LIMITS = SnapshotLimits(1_000, 1 << 30, 1 << 60)


def a_snapshot(name="s-1", wall_ns=5, *, window="w-1", body=b'{"requests":[1]}'):
    stored, is_packed = snapshots.packed(body)
    causes = (SnapshotCause("window", window, window),) if window else ()
    return StoredSnapshot(name, wall_ns, stored, is_packed, 1, 2, 0, causes)


def keep(store, *many, limits=NO_LIMITS, now=1_000):
    with store.database.transaction() as cursor:
        for each in many:
            snapshots.save(cursor, each)
        return snapshots.prune(cursor, now, limits)


def names(store):
    return [row.id for row in snapshots.newest(store.database, 100)]


def test_a_snapshot_is_found_by_its_id_and_by_its_windows(store):
    keep(store, a_snapshot())
    assert snapshots.load(store.database, "s-1") == a_snapshot()
    assert snapshots.load(store.database, "w-1") == a_snapshot()
    assert snapshots.load(store.database, "w-2") is None


def test_the_first_snapshot_of_a_window_stays(store):
    keep(store, a_snapshot(), a_snapshot("s-2", 9, body=b"{}"))
    assert snapshots.load(store.database, "w-1").document() == b'{"requests":[1]}'
    assert snapshots.load(store.database, "s-2").causes == ()


def test_one_snapshot_serves_all_that_opened_together(store):
    breaker = SnapshotCause("breaker", "stage:vision_encode:image", "w-1")
    both = replace(a_snapshot(), causes=(SnapshotCause("window", "w-1", "w-1"), breaker))
    keep(store, both, replace(a_snapshot("s-2", 9), causes=(breaker,)))
    newest, first = snapshots.newest(store.database, 9)
    assert (first.causes, newest.causes) == (both.causes, (breaker,))
    assert (first.requests, first.threads, first.unclean, first.bytes) == (1, 2, 0, 16)


def test_a_big_one_is_packed_and_comes_back_as_it_was(store):
    body = b'{"requests":[' + b"0," * 20_000 + b"0]}"
    big = a_snapshot(body=body)
    assert len(big.body) < len(body) / 20
    keep(store, big)
    assert snapshots.load(store.database, "s-1").document() == body


@pytest.mark.parametrize("body", [b"not packed", zlib.compress(b"x" * 100)[:-4]])
def test_a_damaged_body_is_said_and_not_served(body):
    with pytest.raises(StoreError, match="s-1"):
        replace(a_snapshot(), body=body, is_packed=True).document()


def test_a_body_that_swells_beyond_all_measure_is_refused(monkeypatch):
    monkeypatch.setattr(snapshots, "_BODY_LIMIT_BYTES", 1_000)
    with pytest.raises(StoreError, match="larger than 1000 bytes"):
        snapshots.unpacked("s-1", zlib.compress(b"x" * 100_000))


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        (replace(NO_LIMITS, count=2), ["s-4", "s-3"]),
        (replace(NO_LIMITS, bytes=3 * 16), ["s-4", "s-3", "s-2"]),
        (replace(NO_LIMITS, keep_ns=70), ["s-4"]),
        (NO_LIMITS, ["s-4", "s-3", "s-2", "s-1"]),
    ],
    ids=["count", "bytes", "age", "none"],
)
def test_the_oldest_go_first_by_each_limit(store, limits, kept):
    many = [a_snapshot(f"s-{n}", n * 10, window=f"w-{n}") for n in range(1, 5)]
    assert keep(store, *many, limits=limits, now=105) == 4 - len(kept)
    assert names(store) == kept
    assert snapshots.load(store.database, "w-1") is None or "s-1" in kept


def test_what_was_stored_for_windows_before_is_kept(tmp_path):
    path = tmp_path / "old.db"
    first = files("hotstage.store.migrations").joinpath("0001_first.sql").read_text()
    folder = tmp_path / "only_first"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "0001_first.sql").write_text(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        before = Database(path, "only_first")
    with before.transaction() as cursor:
        cursor.execute("INSERT INTO snapshots VALUES ('w-1', 7, ?)", (b'{"requests":[]}',))
    before.close()
    now = Database(path, "hotstage.store.migrations")
    found = snapshots.load(now, "w-1")
    assert (found.id, found.wall_ns, found.document()) == ("s-w-1", 7, b'{"requests":[]}')
    assert (found.requests, found.causes) == (None, (SnapshotCause("window", "w-1", "w-1"),))
    now.close()
