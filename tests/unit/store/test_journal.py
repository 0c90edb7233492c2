# SPDX-License-Identifier: Apache-2.0
"""What waits for the disk: in order, bounded, counted."""

from __future__ import annotations

import threading
import time

import pytest

from hotstage.errors import StoreError
from hotstage.store import journal as journal_module
from hotstage.store import outbox, windows
from hotstage.store.journal import Journal
from hotstage.store.store import Changes


@pytest.fixture
def full_disk(store):
    """Make the disk full; the returned function empties it again."""
    ((pages,),) = store.database.maintain("PRAGMA page_count")

    def fill():
        store.database.maintain(f"PRAGMA max_page_count = {pages}")

    def free():
        store.database.maintain("PRAGMA max_page_count = 1000000")

    return fill, free


def event_change(make, id, at_ns=1, size=40_000):
    return Changes(at_ns, 0, events=(make.event(id, body=b"x" * size),))


def ids(store):
    return [row.event.id for row in outbox.after(store.database, 0, 1000)]


def test_flush_writes_in_order_and_tells_what_is_safe(store, make):
    safe = []
    journal = Journal(store, 10, on_commit=safe.extend)
    changes = [event_change(make, name) for name in ("a", "b", "c")]
    for change in changes:
        journal.submit(change)
    journal.flush()
    assert ids(store) == ["a", "b", "c"]
    assert safe == changes
    assert journal.state() == journal_module.JournalState(0, None, 3, 0, None)


def test_a_full_disk_loses_nothing_and_order_survives(store, make, full_disk):
    fill, free = full_disk
    safe = []
    journal = Journal(store, 10, on_commit=safe.extend)
    fill()
    journal.submit(event_change(make, "a", at_ns=5))
    with pytest.raises(StoreError):
        journal.flush()
    journal.submit(event_change(make, "b"))
    state = journal.state()
    assert (state.pending, state.oldest_ns, state.lost_total) == (2, 5, 0)
    assert "full" in state.error
    assert safe == []
    free()
    journal.flush()
    assert ids(store) == ["a", "b"]
    assert journal.state().error is None


def test_when_the_line_is_full_a_mere_state_goes_before_an_event(store, make, full_disk):
    journal = Journal(store, 2)
    journal.submit(event_change(make, "a"))
    journal.submit(Changes(2, 0, windows=(make.window(),)))
    journal.submit(event_change(make, "b"))
    journal.flush()
    assert ids(store) == ["a", "b"]
    assert journal.state().lost_total == 1


def test_states_that_wait_are_told_once_with_their_last_word(store, make):
    batches = []
    journal = Journal(store, 10, on_commit=batches.append)
    for score in (1.0, 2.0, 3.0):
        journal.submit(Changes(1, 0, windows=(make.window(score=score), make.window("w-2", score=score))))
    assert journal.state().pending == 1
    journal.flush()
    assert len(batches) == 1
    assert windows.load(store.database, "w-1").window.score == 3.0
    assert windows.load(store.database, "w-2").window.score == 3.0


def test_a_state_is_never_moved_past_an_event(store, make):
    journal = Journal(store, 10)
    journal.submit(Changes(1, 0, windows=(make.window(score=1.0),)))
    journal.submit(event_change(make, "a"))
    journal.submit(Changes(3, 0, windows=(make.window(score=3.0),)))
    assert journal.state().pending == 3


def test_the_thread_writes_an_event_at_once_and_a_state_within_its_time(store, make, monkeypatch):
    monkeypatch.setattr(journal_module, "STATE_SECONDS", 0.3)
    committed = threading.Event()
    journal = Journal(store, 10, on_commit=lambda _: committed.set())
    journal.start()
    began = time.monotonic()
    journal.submit(Changes(1, 0, windows=(make.window(),)))
    assert committed.wait(5), "the state was not written within 5 s"
    assert time.monotonic() - began > 0.25
    committed.clear()
    began = time.monotonic()
    journal.submit(event_change(make, "a"))
    assert committed.wait(5), "the event was not written within 5 s"
    assert time.monotonic() - began < 0.25
    journal.stop(5)


def test_when_only_events_wait_the_oldest_goes_and_is_counted(store, make):
    journal = Journal(store, 2)
    for name in ("a", "b", "c"):
        journal.submit(event_change(make, name))
    journal.flush()
    assert ids(store) == ["b", "c"]
    assert journal.state().lost_total == 1


def test_a_change_that_can_never_be_written_is_dropped_counted_and_holds_nobody_up(store, make, caplog):
    journal = Journal(store, 10)
    journal.submit(event_change(make, "a"))
    journal.submit(Changes(2, 0, events=(make.event("b"),), windows=(make.window(opened_ns=1 << 70),)))
    journal.submit(event_change(make, "c"))
    journal.flush()
    assert ids(store) == ["a", "c"]
    state = journal.state()
    assert (state.committed_total, state.lost_total, state.pending) == (2, 1, 0)
    assert "cannot be written and is dropped" in caplog.text


def test_an_empty_change_does_not_wait(store):
    journal = Journal(store, 2)
    journal.submit(Changes(1, 1))
    assert journal.state().pending == 0


def test_the_thread_commits_by_itself_and_stop_leaves_nothing_behind(store, make):
    committed = threading.Event()
    journal = Journal(store, 10, on_commit=lambda _: committed.set())
    journal.start()
    journal.submit(event_change(make, "a"))
    assert committed.wait(5), "nothing was committed within 5 s"
    journal.submit(event_change(make, "b"))
    assert journal.stop(5) == 0
    assert ids(store) == ["a", "b"]


def test_the_thread_tries_again_when_the_disk_has_room(store, make, full_disk, monkeypatch):
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.01)
    fill, free = full_disk
    committed = threading.Event()
    journal = Journal(store, 10, on_commit=lambda _: committed.set())
    fill()
    journal.start()
    journal.submit(event_change(make, "a"))
    deadline = threading.Event()
    while journal.state().error is None and not deadline.wait(0.005):
        pass
    free()
    assert committed.wait(5), "the change was not written within 5 s of the disk having room"
    journal.stop(5)
    assert ids(store) == ["a"]


def test_stop_says_how_much_stays_unwritten(store, make, full_disk, monkeypatch):
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.01)
    fill, free = full_disk
    journal = Journal(store, 10)
    fill()
    journal.start()
    journal.submit(event_change(make, "a"))
    assert journal.stop(5) == 1
    free()
