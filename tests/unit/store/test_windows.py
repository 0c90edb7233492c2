# SPDX-License-Identifier: Apache-2.0
"""Windows survive the way to the file and back."""

from __future__ import annotations

from hotstage.store import snapshots, windows


def save(store, *many, offset=100, state=None):
    with store.database.transaction() as cursor:
        for window in many:
            windows.save(cursor, window, offset, state)


def test_a_window_comes_back_as_it_was_with_what_dates_it(store, make):
    window = make.window()
    save(store, window, offset=1_000)
    assert windows.load(store.database, "w-1") == windows.StoredWindow(window, "open", 1_000)
    assert windows.load(store.database, "w-2") is None


def test_the_later_state_of_a_window_replaces_the_earlier(store, make):
    save(store, make.window(), make.window(closed_ns=9_000, score=8.0))
    stored = windows.load(store.database, "w-1")
    assert (stored.state, stored.window.score, stored.window.closed_ns) == ("closed", 8.0, 9_000)


def test_a_window_whose_cause_was_found_is_stored_under_its_kind(store, make):
    save(store, make.window(), make.window(kind="gpu_xid"))
    assert store.database.read("SELECT kind FROM windows") == [("gpu_xid",)]


def test_newest_lists_closed_windows_newest_first_and_open_ones_only_if_asked(store, make):
    save(
        store,
        make.window("old", opened_ns=1, closed_ns=2),
        make.window("new", opened_ns=5, closed_ns=6),
        make.window("live", opened_ns=9),
    )
    assert [s.window.id for s in windows.newest(store.database, include_open=False, limit=9)] == [
        "new",
        "old",
    ]
    found = windows.newest(store.database, include_open=True, limit=2)
    assert [s.window.id for s in found] == ["live", "new"]


def test_interrupting_closes_open_windows_at_the_last_time_they_were_seen(store, make):
    save(store, make.window("open", updated_ns=6_500), make.window("done", closed_ns=9_000))
    with store.database.transaction() as cursor:
        interrupted = windows.interrupt_open(cursor)
    assert [(s.window.id, s.state, s.window.closed_ns) for s in interrupted] == [
        ("open", "interrupted", 6_500)
    ]
    assert windows.load(store.database, "open").state == "interrupted"
    assert windows.load(store.database, "done").state == "closed"


def test_a_forgotten_window_takes_its_snapshot_with_it(store, make):
    save(store, make.window("gone", closed_ns=9_000), make.window("kept", closed_ns=90_000))
    with store.database.transaction() as cursor:
        for at, name in enumerate(("gone", "kept")):
            cause = snapshots.SnapshotCause("window", name, name)
            taken = snapshots.StoredSnapshot(f"s-{name}", at, b"{}", False, 0, 0, 0, (cause,))
            snapshots.save(cursor, taken)
        assert windows.delete_closed(cursor, before_wall_ns=50_000) == 1
    assert snapshots.load(store.database, "gone") is None
    assert snapshots.load(store.database, "kept") is not None


def test_the_oldest_go_first_and_an_open_one_never(store, make):
    save(
        store,
        make.window("live", opened_ns=1),
        make.window("a", opened_ns=2, closed_ns=3),
        make.window("b", opened_ns=4, closed_ns=5),
    )
    with store.database.transaction() as cursor:
        assert windows.delete_oldest(cursor, 1) == 1
    kept = windows.newest(store.database, include_open=True, limit=9)
    assert {stored.window.id for stored in kept} == {"live", "b"}
