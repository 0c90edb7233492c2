# SPDX-License-Identifier: Apache-2.0
"""Events held for their destinations, in order per subject."""

from __future__ import annotations

import sqlite3
from importlib.resources import files

import pytest

from hotstage.errors import StoreError
from hotstage.notify.db import KEEP_DEAD_NS, KEEP_DELIVERED_NS, Counts, NotifyDatabase
from hotstage.notify.replay import Selection, replay

NOW = 1_000


@pytest.fixture
def filled(box, held):
    """`filled(events…, names=…)`: held for the destinations `a` (and more)."""
    box.register({"a": "https://x", "b": "https://y"})

    def put(*events, names=("a",), store="store-1"):
        box.hold(store, events, [list(names)] * len(events), NOW)
        return box

    return put


def test_holding_events_moves_the_progress_with_them(filled, held):
    box = filled(held(3), held(4))
    assert box.progress() == ("store-1", 4)
    assert box.next_due("a").event == held(3)


def test_before_the_first_event_nothing_is_held(box):
    assert box.progress() == (None, 0)
    assert box.next_due("a") is None
    assert box.next_due_in("a") is None


def test_an_event_is_queued_once_however_often_it_comes(filled, held):
    box = filled(held(1))
    box.delivered(box.next_due("a"), NOW)
    filled(held(1), held(2))
    assert box.next_due("a").event.id == "evt_2"
    assert box.counts(["a"])[0].pending == 1


def test_an_event_that_nobody_wants_only_moves_the_progress(filled, held):
    box = filled(held(9), names=())
    assert box.progress() == ("store-1", 9)
    assert box.database.read("SELECT count(*) FROM events") == [(0,)]


def test_a_later_event_of_a_subject_waits_for_the_earlier_one_and_other_subjects_do_not(filled, held, clock):
    box = filled(held(1, subject="x"), held(2, subject="x"), held(3, subject="y"))
    box.retry(box.next_due("a"), "down", 500, NOW)
    assert box.next_due("a").event.seq == 3
    box.delivered(box.next_due("a"), NOW)
    assert box.next_due("a") is None
    clock.advance(500)
    first = box.next_due("a")
    assert (first.event.seq, first.attempts) == (1, 1)
    box.dead(first, "given up", NOW)
    assert box.next_due("a").event.seq == 2


def test_destinations_do_not_wait_for_each_other(filled, held):
    box = filled(held(1), names=("a", "b"))
    box.retry(box.next_due("a"), "down", 500, NOW)
    assert box.next_due("b").event.seq == 1
    assert (box.next_due_in("a"), box.next_due_in("b")) == (500, 0)


def test_counts_tell_what_became_of_all(filled, held):
    box = filled(held(1), held(2), held(3), held(4))
    box.delivered(box.next_due("a"), NOW)
    box.dead(box.next_due("a"), "answered 400", NOW)
    box.retry(box.next_due("a"), "down", 1, NOW)
    assert box.counts(["a", "c"]) == [
        Counts(
            "a", delivered=1, failed=2, dead=1, delivered_wall_ns=NOW, error="down", error_wall_ns=NOW,
            pending=2, oldest_wall_ns=NOW,
        ),
        Counts("c"),
    ]  # fmt: skip


def test_a_disabled_destination_loses_its_queue_to_the_dead_letters_and_new_events_too(filled, held):
    box = filled(held(1), held(2), names=("a", "b"))
    box.disable("a", "answered 410", NOW)
    filled(held(3), names=("a", "b"))
    assert box.next_due("a") is None
    assert box.next_due("b").event.seq == 1
    counts = box.counts(["a"])[0]
    assert (counts.dead, counts.pending, counts.disabled_error) == (3, 0, "answered 410")


def test_a_changed_url_puts_a_disabled_destination_back_into_use(filled, held):
    box = filled()
    box.disable("a", "answered 410", NOW)
    box.register({"a": "https://x"})
    assert box.counts(["a"])[0].disabled_error == "answered 410"
    box.register({"a": "https://elsewhere"})
    assert box.counts(["a"])[0].disabled_error is None


def test_a_delivery_that_a_replay_put_an_earlier_one_before_is_made_again_after_it(filled, held):
    box = filled(held(1), held(2))
    box.dead(box.next_due("a"), "answered 400", NOW)
    under_way = box.next_due("a")
    replay(box.database, ["a"], Selection("dead"), NOW)
    box.delivered(under_way, NOW)
    order = []
    while (job := box.next_due("a")) is not None:
        order.append(job.event.seq)
        box.delivered(job, NOW)
    assert order == [1, 2], "the newest is what the receiver hears last"


def test_a_destination_waits_for_the_first_in_line_not_for_those_behind_it(filled, held):
    box = filled(held(1), held(2))
    box.retry(box.next_due("a"), "down", 500, NOW)
    assert box.next_due_in("a") == 500


def test_old_deliveries_are_forgotten_and_waiting_ones_are_not(filled, held):
    box = filled(held(1), held(2), held(3))
    box.delivered(box.next_due("a"), NOW)
    box.dead(box.next_due("a"), "x", NOW)
    box.prune(NOW + KEEP_DELIVERED_NS + 1)
    assert box.database.read("SELECT seq FROM events ORDER BY seq") == [(2,), (3,)]
    box.prune(NOW + KEEP_DEAD_NS + 1)
    assert box.database.read("SELECT seq FROM events") == [(3,)]


def test_a_full_disk_takes_nothing_and_moves_nothing(filled, held):
    box = filled(held(1))
    ((pages,),) = box.database.maintain("PRAGMA page_count")
    box.database.maintain(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError):
        filled(held(2), held(3, body=b"x" * 1_000_000))
    assert box.progress() == ("store-1", 1)
    assert box.database.read("SELECT seq FROM events") == [(1,)]


def test_two_notifiers_cannot_use_one_directory(box, tmp_path):
    with pytest.raises(StoreError, match="another process"):
        NotifyDatabase(tmp_path / "notify")


def test_the_notifiers_own_clock_goes_on_after_a_restart_and_a_reboot(box, held, clock, tmp_path):
    box.register({"a": "https://x"})
    box.hold("store-1", [held(1)], [["a"]], NOW)
    clock.advance(100)
    box.retry(box.next_due("a"), "down", 50, NOW)
    clock.advance(20)
    box.close()
    rebooted = type(clock)(now_ns=7)
    again = NotifyDatabase(tmp_path / "notify", rebooted)
    assert again.next_due_in("a") == 30
    rebooted.advance(30)
    job = again.next_due("a")
    assert again.run_clock.now_ns() - job.since_run_ns == 150 * 10**9
    again.close()


def test_a_delivery_of_an_older_notifier_is_due_at_once_and_counted_as_new(tmp_path, clock):
    old = sqlite3.connect(tmp_path / "notify.db")
    for name in ("0001_first.sql", "0002_alerts.sql"):
        old.executescript((files("hotstage.notify.migrations") / name).read_text())
    far_ns = 4 * 10**18
    old.executescript(
        "PRAGMA user_version = 2; INSERT INTO events VALUES (1, 'evt_1', 4, 't', 's', 5, x'7b7d');"
        f"INSERT INTO deliveries VALUES ('a', 1, 's', 'pending', {far_ns}, {far_ns}, 3, NULL, 'down');"
        f"INSERT INTO standing VALUES ('a', 's', 1, 'f', x'7b7d', {far_ns})"
    )
    old.close()
    box = NotifyDatabase(tmp_path, clock)
    job = box.next_due("a")
    assert (job.event.id, job.attempts) == ("evt_1", 3)
    assert box.run_clock.now_ns() == job.since_run_ns
    assert box.database.read("SELECT due_run_ns FROM standing") == [(0,)]
    box.close()
