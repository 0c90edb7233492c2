# SPDX-License-Identifier: Apache-2.0
"""SQLite, opened one way: WAL, strict tables, forward-only migrations, every refusal a `StoreError`.

The only importer of sqlite3. It knows no table: those are in the migrations and in the modules beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from hotstage.errors import StoreError
from hotstage.store.reserve import Reserve

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Value, ...]
Cursor: TypeAlias = sqlite3.Cursor

BUSY_TIMEOUT_MS = 5000
CHECKPOINT_PAGES = 64
"""The log is put into the file after so many pages (256 kB). SQLite's own 1000 would fill a small file system
with old versions of pages, and a full one leaves the file no room to grow."""
LOG_KEPT_BYTES = 1 << 20
_KEPT = "changes are kept and tried again"


class RejectedChangeError(Exception):
    """The schema says that this can never be written: trying again would only hold up what comes behind."""


class Database:
    """One database file: a writing connection and a reading one, both usable from any thread.

    A reader never waits for the writer (WAL), so that a slow disk does not stall the API. `migrations` names
    the package whose `NNNN_*.sql` files are applied in order; `user_version` remembers the last one.
    """

    def __init__(self, path: Path, migrations: str) -> None:
        self.path = path
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._reserve = Reserve(path)
        with _refusals(path, "open"):
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._writer = _connect(path)
            try:
                with _one_at_a_time(path.parent):
                    self._prepare(migrations)
                self._reader = _connect(path)
                self._reader.execute("PRAGMA query_only = ON")
            except BaseException:
                self._writer.close()
                raise
            path.chmod(0o640)

    @contextmanager
    def transaction(self, *, settles: bool = False) -> Iterator[sqlite3.Cursor]:
        """All or nothing, on disk (synchronous FULL) when the block ends.

        Raises StoreError; nothing is kept then. On a full disk the log is emptied first, so that the caller's
        next try finds the room that the log had taken. What `settles` (marks or deletes what is kept, adds
        nothing) finds the reserve beside it.
        """
        with self._write_lock, _refusals(self.path, "write to"):
            if not settles:
                self._hold_reserve()
            cursor = self._writer.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException as error:
                # A full disk may have rolled back already; then there is nothing left to undo.
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    self._reserve.release()
                    _empty_log(self._writer)
                if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | OverflowError):
                    raise RejectedChangeError(f"{self.path}: {error}") from error
                raise

    def read(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """All rows of one query, seeing everything committed before it."""
        with self._read_lock, _refusals(self.path, "read"):
            return self._reader.execute(sql, parameters).fetchall()

    def maintain(self, sql: str) -> list[Row]:
        """A pragma that may not run inside a transaction (checkpoint, limits)."""
        with self._write_lock, _refusals(self.path, "maintain"):
            return self._writer.execute(sql).fetchall()

    def give_back_pages(self, most: int) -> None:
        """Shrink the file by up to `most` free pages."""
        with self._write_lock, _refusals(self.path, "shrink"):
            # As a script: `execute` would take one step, and one step of this pragma frees one page.
            self._writer.executescript(f"PRAGMA incremental_vacuum({most})")
            _empty_log(self._writer)

    def size_bytes(self) -> int:
        """Bytes of live pages: what retention compares with its limit (the file itself shrinks after it)."""
        ((pages,),) = self.read("PRAGMA page_count")
        ((free,),) = self.read("PRAGMA freelist_count")
        ((page_bytes,),) = self.read("PRAGMA page_size")
        assert isinstance(pages, int) and isinstance(free, int) and isinstance(page_bytes, int)
        return (pages - free) * page_bytes

    def close(self) -> None:
        """With everything in the file itself, as far as the disk has room. Closing again is nothing."""
        with self._read_lock:
            self._reader.close()
        with self._write_lock:
            _empty_log(self._writer)
            self._writer.close()

    def _hold_reserve(self) -> None:
        if self._reserve.hold():
            return
        _empty_log(self._writer)
        if not self._reserve.hold():
            raise StoreError(
                f"cannot write to {self.path}: the disk is full",
                remedy=f"free space on the file system of {self.path.parent}; {_KEPT}",
            )

    def _prepare(self, migrations: str) -> None:
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version == 0:
            # Only possible before the first table exists.
            self._writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._writer.execute(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES}")
        # An earlier run that ended on a full disk has left its log.
        _empty_log(self._writer)
        if _size_of(self.path.with_name(f"{self.path.name}-wal")) > LOG_KEPT_BYTES:
            self._reserve.release()
            _empty_log(self._writer)
        scripts = _scripts(migrations)
        if version > len(scripts):
            raise StoreError(
                f"{self.path} was written by a newer hotstage (schema {version}, known {len(scripts)})",
                remedy="install that version again, or move the file away to start empty",
            )
        for number, script in enumerate(scripts[version:], start=version + 1):
            # One transaction a migration: a crash leaves the schema before it or after it.
            self._writer.executescript(
                f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;"
            )


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Of all processes that open a database here: whoever is first makes the tables, others find them.

    Who waits in vain goes on, and is refused by SQLite where it must be.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def lock_directory(directory: Path, setting: str) -> int:
    """Make `directory` and hold it for one process; the descriptor to close. The kernel lets go at any end.

    `setting` is the key that names the directory, for the remedy. Raises StoreError.
    """
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise StoreError.of(
            error,
            f"cannot write in {directory}",
            remedy=f"set {setting} to a directory that this user may write",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreError.of(
            error,
            f"another process of hotstage uses {directory}",
            remedy=f"stop it, or give this one a {setting} of its own",
        ) from error
    return descriptor


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _empty_log(connection: sqlite3.Connection) -> None:
    """Put the log into the file and give its room back, as far as readers and the disk allow."""
    with contextlib.suppress(sqlite3.DatabaseError):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _scripts(migrations: str) -> list[str]:
    found = sorted(
        (entry.name, entry) for entry in files(migrations).iterdir() if entry.name.endswith(".sql")
    )
    return [entry.read_text() for _, entry in found]


@contextmanager
def _refusals(path: Path, act: str) -> Iterator[None]:
    """sqlite3's and the file system's errors as a StoreError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"cannot {act} {path}: {error}", remedy=_remedy(error, path)) from error
    except OSError as error:
        raise StoreError(f"cannot {act} {path}: {error.strerror}", remedy=f"check {path.parent}") from error


def _remedy(error: sqlite3.Error, path: Path) -> str:
    match getattr(error, "sqlite_errorcode", None):
        case sqlite3.SQLITE_FULL:
            return f"free space on the file system of {path.parent}; {_KEPT}"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another process writes to this file; only one hotstage may use a state directory"
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return f"move {path} away to start empty; `sqlite3 {path} .recover` may save its rows"
        case _:
            return f"check that {path.parent} is writable for this user"
