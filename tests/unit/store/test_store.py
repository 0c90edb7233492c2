# SPDX-License-Identifier: Apache-2.0
"""One transaction for a change and its events; a new run takes over from the one before."""

from __future__ import annotations

import pytest

from hotstage.errors import StoreError
from hotstage.store import breakers, outbox, windows
from hotstage.store.store import Changes, Store


def all_of_it(make, **changed):
    parts = {
        "windows": (make.window(),),
        "breakers": (make.breaker(),),
        "transitions": (make.transition(),),
        "events": (make.event(),),
    }
    return Changes(at_ns=7_000, wall_offset_ns=1_000, **(parts | changed))


def test_a_change_is_written_with_all_its_parts(store, make):
    store.commit([all_of_it(make)])
    assert windows.load(store.database, "w-1").window == make.window()
    assert store.restored_breakers() == [make.breaker()]
    assert breakers.newest_transitions(store.database, 9)[0].wall_ns == 8_000
    assert outbox.after(store.database, 0, 9)[0].event == make.event()


def test_a_refused_change_leaves_no_part_of_itself(store, make):
    ((pages,),) = store.database.maintain("PRAGMA page_count")
    store.database.maintain(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError):
        store.commit([all_of_it(make, events=(make.event(body=b"x" * 1_000_000),))])
    assert windows.load(store.database, "w-1") is None
    assert store.restored_breakers() == []
    assert outbox.after(store.database, 0, 9) == []


def test_a_new_run_closes_what_was_left_open_and_tells_of_it_once(store, make):
    store.commit([all_of_it(make)])

    def told(stored):
        return make.event(f"interrupted-{stored.window.id}")

    assert [stored.window.id for stored in store.begin_run(told)] == ["w-1"]
    assert store.begin_run(told) == []
    assert [row.event.id for row in outbox.after(store.database, 0, 9)] == ["e-1", "interrupted-w-1"]


def test_an_empty_change_is_false(make):
    assert not Changes(1, 1)
    assert all_of_it(make)


def test_two_agents_cannot_use_one_directory(store, clock, boot):
    with pytest.raises(StoreError, match="another process"):
        Store(store.directory, clock, boot)


def test_the_store_id_stays_with_the_file(tmp_path, clock, boot):
    store = Store(tmp_path, clock, boot)
    first = store.store_id
    store.close()
    again = Store(store.directory, clock, boot)
    assert again.store_id == first
    again.close()
    (store.directory / "hotstage.db").unlink()
    fresh = Store(store.directory, clock, boot)
    assert fresh.store_id != first
    fresh.close()


def test_a_clean_end_is_remembered_and_an_unclean_one_shows(tmp_path, clock, boot, make):
    store = Store(tmp_path, clock, boot)
    store.begin_run(lambda _: make.event())
    store.close()
    again = Store(store.directory, clock, boot)
    again.begin_run(lambda _: make.event())
    runs = again.database.read("SELECT stopped_wall_ns FROM runs ORDER BY run_id")
    again.close()
    assert runs == [(clock.wall_ns(),), (None,)]
