# SPDX-License-Identifier: Apache-2.0
"""The database opened one way, and every refusal as a StoreError with a remedy."""

from __future__ import annotations

import os
import sqlite3
import threading

import pytest

from hotstage.errors import StoreError
from hotstage.store.db import Database, RejectedChangeError, lock_directory

MIGRATIONS = "hotstage.store.migrations"


@pytest.fixture
def database(tmp_path):
    opened = Database(tmp_path / "x.db", MIGRATIONS)
    yield opened
    opened.close()


def put(database: Database, key: str) -> None:
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO meta VALUES (?, 'v')", (key,))


def test_it_is_wal_with_full_sync_incremental_vacuum_and_not_world_readable(database, tmp_path):
    assert database.maintain("PRAGMA journal_mode") == [("wal",)]
    assert database.maintain("PRAGMA synchronous") == [(2,)]
    assert database.maintain("PRAGMA auto_vacuum") == [(2,)]
    assert (tmp_path / "x.db").stat().st_mode & 0o777 == 0o640


def test_tables_are_strict(database):
    with pytest.raises(RejectedChangeError, match="cannot store TEXT"), database.transaction() as cursor:
        cursor.execute("INSERT INTO runs (boot_id, started_wall_ns) VALUES ('b', 'noon')")


def test_a_failed_transaction_leaves_nothing_and_the_next_one_works(database):
    with pytest.raises(KeyError), database.transaction() as cursor:
        cursor.execute("INSERT INTO meta VALUES ('half', 'v')")
        raise KeyError
    put(database, "whole")
    assert database.read("SELECT key FROM meta") == [("whole",)]


def test_migrations_run_once_and_opening_again_keeps_the_rows(database, tmp_path):
    put(database, "kept")
    database.close()
    again = Database(tmp_path / "x.db", MIGRATIONS)
    assert again.read("SELECT key FROM meta") == [("kept",)]
    again.close()


def test_several_that_open_a_new_file_at_once_all_find_its_tables(tmp_path):
    """The notifier at its first start, and a command that looks at its database."""
    failures: list[BaseException] = []
    for number in range(12):
        together = threading.Barrier(6)

        def open_and_put(name: str, path=tmp_path / f"{number}.db", together=together) -> None:
            try:
                together.wait(10)
                opened = Database(path, MIGRATIONS)
                put(opened, name)
                opened.close()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=open_and_put, args=(name,)) for name in "abcdef"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        seen = Database(tmp_path / f"{number}.db", MIGRATIONS)
        assert failures == [] and seen.read("SELECT key FROM meta ORDER BY key") == [
            (key,) for key in "abcdef"
        ]
        assert seen.maintain("PRAGMA auto_vacuum") == [(2,)]
        seen.close()


def test_a_file_of_a_newer_version_is_refused_and_left_alone(database, tmp_path):
    database.maintain("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="newer hotstage"):
        Database(tmp_path / "x.db", MIGRATIONS)


def test_a_file_that_is_no_database_names_the_remedy(tmp_path):
    (tmp_path / "x.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(StoreError) as caught:
        Database(tmp_path / "x.db", MIGRATIONS)
    assert "move" in caught.value.remedy


def test_a_directory_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open"):
        Database(tmp_path / "file" / "x.db", MIGRATIONS)


def test_a_full_disk_refuses_the_write_keeps_the_old_rows_and_recovers(database):
    put(database, "before")
    ((pages,),) = database.maintain("PRAGMA page_count")
    database.maintain(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError) as caught, database.transaction() as cursor:
        cursor.execute("INSERT INTO meta VALUES ('big', ?)", ("x" * 1_000_000,))
    assert "free space" in caught.value.remedy
    database.maintain("PRAGMA max_page_count = 1000000")
    put(database, "after")
    assert database.read("SELECT key FROM meta ORDER BY key") == [("after",), ("before",)]


def test_a_reader_is_not_held_up_by_an_open_transaction(database):
    put(database, "committed")
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO meta VALUES ('open', 'v')")
        found = []
        reader = threading.Thread(target=lambda: found.extend(database.read("SELECT key FROM meta")))
        reader.start()
        reader.join(5)
        assert found == [("committed",)]


def test_a_second_writer_that_holds_the_lock_is_reported_as_such(tmp_path, monkeypatch):
    monkeypatch.setattr("hotstage.store.db.BUSY_TIMEOUT_MS", 20)
    database = Database(tmp_path / "x.db", MIGRATIONS)
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as caught:
        put(database, "k")
    assert "another process" in caught.value.remedy
    other.close()
    put(database, "k")
    database.close()


def test_a_directory_that_is_taken_cannot_be_had_by_trying_again(tmp_path):
    held = lock_directory(tmp_path, "store.directory")
    try:
        with pytest.raises(StoreError, match="another process of hotstage uses") as refused:
            lock_directory(tmp_path, "store.directory")
    finally:
        os.close(held)
    assert refused.value.exit_code == 4
    assert "store.directory" in str(refused.value.remedy)
