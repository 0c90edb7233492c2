# SPDX-License-Identifier: Apache-2.0
"""Databases on a real file system of 3 MB: its own log must not be what fills it, and a full disk heals."""

from __future__ import annotations

import itertools
import os
import subprocess

import pytest

from hotstage.errors import StoreError
from hotstage.notify.db import HeldEvent, NotifyDatabase
from hotstage.store.db import Database

EVENTS = 600
BODY = b'{"data":{"text":"' + b"x" * 900 + b'"}}'


@pytest.fixture
def small(tmp_path, root):
    """A directory on a file system of 3 MB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def root(request):
    if os.geteuid() != 0:
        request.getfixturevalue("needs_root")


def log_bytes(place, name):
    path = place / f"{name}-wal"
    return path.stat().st_size if path.exists() else 0


def test_six_hundred_events_are_held_and_delivered_on_three_megabytes(small):
    box = NotifyDatabase(small)
    box.register({"a": "x"})
    largest = 0
    for number in range(1, EVENTS + 1):
        event = HeldEvent(number, f"evt_{number}", "t", f"s{number}", number, BODY)
        box.hold("store", [event], [["a"]], 1)
        box.delivered(box.next_due("a"), 2)
        largest = max(largest, log_bytes(small, "notify.db"))
    assert box.counts(["a"])[0].delivered == EVENTS
    assert largest < 1 << 20
    box.close()
    assert log_bytes(small, "notify.db") == 0, "a clean end leaves everything in the file"


def test_a_log_that_has_filled_the_disk_is_emptied_and_the_next_write_is_taken(small):
    database = Database(small / "hotstage.db", "hotstage.store.migrations")
    database.maintain("PRAGMA wal_autocheckpoint = 0")

    def write(number):
        with database.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta VALUES ('k', ?)", (f"{number:>100000}",))

    write(0)
    database.maintain("PRAGMA wal_checkpoint(TRUNCATE)")
    with pytest.raises(StoreError, match="full"):
        for number in itertools.count():
            write(number)
            assert number < 100, "the log never filled the disk"
    assert log_bytes(small, "hotstage.db") == 0
    write(7)
    ((value,),) = database.read("SELECT value FROM meta WHERE key = 'k'")
    assert value.strip() == "7"
    database.close()


def test_a_log_that_an_earlier_run_left_is_emptied_when_the_file_is_opened(small):
    earlier = Database(small / "hotstage.db", "hotstage.store.migrations")
    earlier.maintain("PRAGMA wal_autocheckpoint = 0")
    for number in range(20):
        with earlier.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta VALUES ('k', ?)", (f"{number:>100000}",))
    assert log_bytes(small, "hotstage.db") > 1 << 20
    Database(small / "hotstage.db", "hotstage.store.migrations").close()
    assert log_bytes(small, "hotstage.db") == 0
    earlier.close()


def test_a_disk_that_others_fill_heals_once_there_is_room(small):
    database = Database(small / "hotstage.db", "hotstage.store.migrations")
    others = small / "others"
    with others.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"x" * 65536)

    def write(number):
        with database.transaction() as cursor:
            cursor.execute("INSERT INTO meta VALUES (?, ?)", (f"k{number}", "x" * 10_000))

    with pytest.raises(StoreError) as caught:
        for number in itertools.count():
            write(number)
            assert number < 1000, "the disk is not full"
    assert "free space" in caught.value.remedy
    others.unlink()
    write(10_000)
    database.close()


@pytest.mark.parametrize("batch", [1, 50])
def test_a_database_that_has_filled_its_own_disk_still_delivers_forgets_and_then_takes_more(small, batch):
    box = NotifyDatabase(small)
    box.register({"a": "x"})

    def hold(first):
        events = [HeldEvent(n, f"evt_{n}", "t", f"s{n}", 1, BODY) for n in range(first, first + batch)]
        box.hold("store", events, [["a"]] * batch, 1)

    held = 0
    with pytest.raises(StoreError, match="full"):
        for held in itertools.count(1, batch):
            hold(held)
            assert held < 10_000, "the disk never got full"
    while (job := box.next_due("a")) is not None:
        box.delivered(job, 2)
    assert box.counts(["a"])[0].delivered > 1000
    box.prune(10**18)
    assert box.database.read("SELECT count(*) FROM events") == [(0,)]
    hold(held)
    assert box.counts(["a"])[0].pending == batch
    box.close()
