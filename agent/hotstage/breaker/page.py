# SPDX-License-Identifier: Apache-2.0
"""The shared-memory page of breaker states: its layout and its only writer. It publishes, it never decides.

A reader (`hotstage_marks.breakers`) takes one aligned 64-bit word per question and nothing else, so that it
can not see half of a change. The layout is written twice, here and there; a test compares the two.

Header, 64 bytes: magic, u32 version, u32 header bytes, u32 capacity, u32 name bytes, boot id (36 characters),
u32 generation, which grows whenever a name gets a slot. Then `capacity` words, then `capacity` names,
NUL-padded. A word, from its lowest bit:

    bits  0..1   state: 0 no breaker, 1 closed, 2 open, 3 half-open
    bit   2      enforced: callers should heed it
    bit   3      what a stale word means: 0 admit, 1 shed
    bits  4..10  percent admitted while the word is fresh
    bits 16..39  low 24 bits of FNV-1a 64 of the name: the slot still belongs to whom the reader thinks
    bits 40..63  CLOCK_MONOTONIC seconds, modulo 2**24, from which the word is stale
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from hotstage.breaker.record import BreakerRecord, BreakerState
from hotstage.config.settings import PageConfig
from hotstage.errors import StoreError

MAGIC = b"hsbrkpg\0"
VERSION = 1
HEADER = struct.Struct("=8sIIII36sI")
CAPACITY = 1024
NAME_BYTES = 128
PAGE_BYTES = HEADER.size + CAPACITY * (8 + NAME_BYTES)
SECONDS_MASK = (1 << 24) - 1

_GENERATION_AT = HEADER.size - 4
_WORDS_AT = HEADER.size
_NAMES_AT = HEADER.size + 8 * CAPACITY


class PageState(IntEnum):
    """Bits 0..1 of a word."""

    closed = 1
    open = 2
    half_open = 3


@dataclass(frozen=True, slots=True)
class PageEntry:
    """What callers are told about one breaker; `is_stale` has them fall back to `stale_sheds`."""

    name: str
    state: PageState
    is_enforced: bool
    admit_ratio: float
    is_stale: bool = False
    stale_sheds: bool = False


def entry_of(record: BreakerRecord, config: PageConfig) -> PageEntry:
    """What callers are told about `record`: an override speaks for itself, even where there is no data."""
    state = PageState[record.state]
    match record.shown:
        case BreakerState.forced_open:
            state = PageState.open
        case BreakerState.disabled:
            state = PageState.closed
    admit_ratio = {
        PageState.closed: 1.0,
        PageState.open: 0.0,
        PageState.half_open: config.half_open_admit_ratio,
    }
    return PageEntry(
        record.name, state, record.is_heeded, admit_ratio[state], record.tells_stale, config.stale_sheds
    )


class BreakerPage:
    """Writes the page at `path`, whose inode is kept for ever: containers hold a mount of it.

    One writer, one thread. Raises StoreError where the file cannot be had or another agent writes it;
    `dropped` counts entries that found no slot (callers admit what they do not find).
    """

    def __init__(self, path: Path, boot_id: str, stale_after_ns: int) -> None:
        self.path = path
        self.dropped = 0
        self._stale_after_ns = stale_after_ns
        with contextlib.ExitStack() as undo:
            try:
                self._lock = _lock(path)
                undo.callback(os.close, self._lock)
                self._map, self._file = _open(path)
            except BlockingIOError as error:
                raise StoreError.of(
                    error,
                    f"another agent writes the breaker page {path}",
                    remedy="stop it, or give this one a page.path of its own",
                ) from error
            except OSError as error:
                raise StoreError.of(
                    error,
                    f"cannot write the breaker page {path}",
                    remedy="set page.path to a file in a directory that this user may write",
                ) from error
            undo.pop_all()
        self._words = memoryview(self._map)[_WORDS_AT:_NAMES_AT].cast("Q")
        # Name → its slot and the constant part of its word.
        self._slots: dict[str, tuple[int, int]] = {}
        self._next_slot = 0
        self._generation = memoryview(self._map)[_GENERATION_AT : HEADER.size].cast("I")
        header = HEADER.pack(MAGIC, VERSION, HEADER.size, CAPACITY, NAME_BYTES, boot_id.encode(), 0)
        if self._map[:_GENERATION_AT] == header[:_GENERATION_AT]:
            self._adopt()
        else:
            for slot in range(CAPACITY):
                self._words[slot] = 0
            self._map[: HEADER.size] = header

    def publish(self, entries: Iterable[PageEntry], now_ns: int) -> None:
        """Make the page say exactly `entries`, fresh until `now_ns` (CLOCK_MONOTONIC) plus the stale time.

        Call it at each tick: without it every word goes stale by itself. Two entries of one name: the last
        holds.
        """
        fresh_until = -(-(now_ns + self._stale_after_ns) // 1_000_000_000)
        long_past = now_ns // 1_000_000_000 - 1
        seen = set()
        is_new = False
        for entry in entries:
            seen.add(entry.name)
            place = self._slots.get(entry.name)
            if place is None:
                if (place := self._take_slot(entry.name)) is None:
                    self.dropped += 1
                    continue
                is_new = True
            slot, named = place
            # One aligned 8-byte store.
            self._words[slot] = named | _word(entry, long_past if entry.is_stale else fresh_until)
        if is_new:
            # After the words: a reader that sees it finds them all.
            self._generation[0] = self._generation[0] + 1 & 0xFFFFFFFF
        for name in self._slots.keys() - seen:
            self._words[self._slots.pop(name)[0]] = 0

    def trouble(self) -> str | None:
        """Why callers that open the page now do not find this one; None while they do."""
        try:
            status = self.path.lstat()
        except OSError as error:
            return f"the breaker page {self.path} is not to be found: {error.strerror}"
        if (status.st_dev, status.st_ino) != self._file:
            return f"{self.path} is another file than the breaker page"
        return None

    def close(self) -> None:
        """Leave the file for its readers; the words go stale by themselves. A second call does nothing."""
        if self._map.closed:
            return
        self._words.release()
        self._generation.release()
        self._map.close()
        os.close(self._lock)

    def _adopt(self) -> None:
        """Keep the slots of an earlier run of this boot, so that readers need not look names up again."""
        for slot in range(CAPACITY):
            if self._words[slot]:
                at = _NAMES_AT + slot * NAME_BYTES
                name = self._map[at : at + NAME_BYTES].rstrip(b"\0").decode(errors="replace")
                self._slots[name] = (slot, name_hash(name) << 16)

    def _take_slot(self, name: str) -> tuple[int, int] | None:
        encoded = name.encode()
        if len(encoded) > NAME_BYTES or len(self._slots) >= CAPACITY:
            return None
        # Round and round, so that a freed slot rests before another name gets it.
        while self._words[self._next_slot]:
            self._next_slot = (self._next_slot + 1) % CAPACITY
        slot, self._next_slot = self._next_slot, (self._next_slot + 1) % CAPACITY
        at = _NAMES_AT + slot * NAME_BYTES
        # The name first: the word that follows is what makes the slot valid.
        self._map[at : at + NAME_BYTES] = encoded.ljust(NAME_BYTES, b"\0")
        place = self._slots[name] = (slot, name_hash(name) << 16)
        return place


def name_hash(name: str) -> int:
    """Low 24 bits of FNV-1a 64 of the name's UTF-8."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value & 0xFFFFFF


def _word(entry: PageEntry, deadline_seconds: int) -> int:
    percent = min(100, max(0, round(entry.admit_ratio * 100)))
    return (
        entry.state
        | entry.is_enforced << 2
        | entry.stale_sheds << 3
        | percent << 4
        | (deadline_seconds & SECONDS_MASK) << 40
    )


def _lock(path: Path) -> int:
    """The right to write the page, while the descriptor is open. Raises BlockingIOError where another has it.

    Of a file beside it that nobody else may open: whoever may read a file may lock it, and all read the page.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.lock")
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open(path: Path) -> tuple[mmap.mmap, tuple[int, int]]:
    """The page, and which file it is: device and inode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        if status.st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)  # every caller reads it, whatever this process's umask
        # Grown only: shrinking would kill the readers that have the end mapped. Allocated, not sparse,
        # because a full disk would otherwise show as a bus error at the first write.
        if status.st_size < PAGE_BYTES:
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        return mmap.mmap(descriptor, PAGE_BYTES), (status.st_dev, status.st_ino)
    finally:
        os.close(descriptor)
