# SPDX-License-Identifier: Apache-2.0
"""Ended deliveries in the queue again, beside a running notifier, in an order that ends with the newest."""

from __future__ import annotations

import sqlite3
from importlib.resources import files

import pytest

from hotstage.errors import PreflightError
from hotstage.notify.db import NotifyDatabase
from hotstage.notify.replay import Replayed, Selection, beside, replay

NOW = 1_000
DEAD = Selection("dead")


@pytest.fixture
def filled(box, held):
    """`filled(events…, names=…)`: held for the destinations `a` (and more)."""
    box.register({"a": "https://x", "b": "https://y"})

    def put(*events, names=("a",)):
        box.hold("store-1", events, [list(names)] * len(events), NOW)
        return box

    return put


def deliver_all(box, name, now=NOW):
    order = []
    while (job := box.next_due(name)) is not None:
        order.append(job.event.seq)
        box.delivered(job, now)
    return order


def test_dead_letters_are_queued_again_in_their_order_and_a_disabled_destination_is_used_again(filled, held):
    box = filled(held(1), held(2), names=("a", "b"))
    box.disable("a", "answered 410", NOW)
    box.dead(box.next_due("b"), "answered 400", NOW)
    assert replay(box.database, ["a"], DEAD, NOW + 7) == [Replayed("a", 2, 0, 0, True)]
    job = box.next_due("a")
    assert (job.event.seq, job.attempts) == (1, 0)
    assert box.counts(["a"])[0].oldest_wall_ns == NOW + 7
    assert box.counts(["a"])[0].disabled_error is None
    assert replay(box.database, ["a", "b"], DEAD, NOW + 8)[1] == Replayed("b", 1, 0, 0, False)


def test_what_came_later_in_the_subject_comes_again_with_it(filled, held):
    box = filled(held(1, subject="x"), held(2, subject="x"), held(3, subject="y"))
    box.dead(box.next_due("a"), "answered 400", NOW)
    assert deliver_all(box, "a") == [2, 3]
    assert replay(box.database, ["a"], DEAD, NOW) == [Replayed("a", 1, 1, 0, False)]
    assert deliver_all(box, "a") == [1, 2], "not 1 alone: the receiver would believe an old state"


def test_events_since_a_time_are_queued_whatever_became_of_them(filled, held):
    box = filled(held(1, subject="x", created_ns=10), held(2, subject="y", created_ns=20))
    deliver_all(box, "a")
    (found,) = replay(box.database, ["a"], Selection("since", since_wall_ns=15), NOW)
    assert found.chosen == 1
    assert deliver_all(box, "a") == [2]


def test_one_event_is_queued_by_its_id_and_keeps_it(filled, held):
    box = filled(held(1, subject="x"), held(2, subject="y"))
    deliver_all(box, "a")
    assert replay(box.database, ["a"], Selection("id", event_id="evt_2"), NOW)[0].chosen == 1
    assert box.next_due("a").event.id == "evt_2"
    assert replay(box.database, ["a"], Selection("id", event_id="evt_9"), NOW)[0].chosen == 0


def test_what_waits_for_a_late_retry_is_tried_at_once(filled, held):
    box = filled(held(1))
    box.retry(box.next_due("a"), "down", 1000, NOW)
    assert replay(box.database, ["a"], DEAD, NOW + 1) == [Replayed("a", 0, 0, 1, False)]
    assert box.next_due("a").event.seq == 1


def test_it_works_beside_the_process_that_holds_the_directory(filled, held, tmp_path):
    box = filled(held(1))
    box.dead(box.next_due("a"), "answered 400", NOW)
    with beside(tmp_path / "notify") as database:
        assert replay(database, ["a"], DEAD, NOW)[0].chosen == 1
    assert box.next_due("a").event.seq == 1


def test_a_notifier_that_never_ran_has_no_database_and_none_is_made(tmp_path):
    with pytest.raises(PreflightError, match="there is no") as caught, beside(tmp_path):
        pass
    assert "start the notifier" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_an_older_notifier_is_brought_up_to_date_with_what_it_holds(tmp_path):
    old = sqlite3.connect(tmp_path / "notify.db")
    old.executescript((files("hotstage.notify.migrations") / "0001_first.sql").read_text())
    old.executescript(
        "PRAGMA user_version = 1; INSERT INTO progress VALUES (1, 'store-1', 4);"
        "INSERT INTO destinations (name, url, dead) VALUES ('a', 'https://x', 1);"
        "INSERT INTO events VALUES (1, 'evt_1', 4, 't', 's', 5, x'7b7d');"
        "INSERT INTO deliveries VALUES ('a', 1, 's', 'dead', 1, 1, 1, 1, 'answered 400')"
    )
    old.close()
    with beside(tmp_path) as database:
        assert replay(database, ["a"], DEAD, NOW) == [Replayed("a", 1, 0, 0, False)]
    box = NotifyDatabase(tmp_path)
    assert box.progress() == ("store-1", 4)
    assert box.next_due("a").event.id == "evt_1"
    box.close()
