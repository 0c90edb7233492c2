# SPDX-License-Identifier: Apache-2.0
"""Admit or shed, read from the page that the hotstage agent keeps in shared memory. Standard library only.

    from hotstage_marks import breakers

    if not breakers.allow("stage:vision_encode:image"):
        return busy()

A caller that knows nothing admits: no agent, no page, no such breaker and a breaker in dry run all answer
True; one that a person has tripped sheds in dry run, too. A breaker whose word is stale answers by its own
policy, which is to admit unless the operator chose otherwise. Nothing here raises or blocks; a question costs
about a microsecond.

The layout is described in `hotstage.breaker.page`; a test compares the two.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import time
from pathlib import Path
from typing import NamedTuple, Optional

DEFAULT_PATH = "/run/hotstage/breakers"
PATH_VARIABLE = "HOTSTAGE_PAGE_PATH"

MAGIC = b"hsbrkpg\0"
VERSION = 1
HEADER = struct.Struct("=8sIIII36sI")
SECONDS_MASK = (1 << 24) - 1
STATES = ("none", "closed", "open", "half_open")

_LOOK_AGAIN_SECONDS = 1.0


class Breaker(NamedTuple):
    """One breaker as the page tells it.

    `admit_ratio` is what callers should let through, were it enforced.
    """

    name: str
    state: str
    enforced: bool
    stale: bool
    admit_ratio: float


class BreakerPage:
    """The page at `path`, mapped when it appears. Safe to share between threads and across fork."""

    def __init__(self, path: Optional[str] = None) -> None:  # noqa: UP045 - read by Python 3.9
        self._path = path or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH
        # The mapped page and its name table, always swapped as one.
        self._seen: Optional[tuple[_Mapping, dict[str, tuple[int, int]]]] = None  # noqa: UP045
        self._generation = 0
        self._look_at = 0.0

    def allow(self, name: str) -> bool:
        """Whether the caller should go on; False only where an enforced breaker says shed."""
        word = self._word(name)
        if not word & 4:
            return True
        if _is_stale(word):
            return not word & 8
        percent = word >> 4 & 127
        return percent >= 100 or (percent > 0 and random.random() * 100 < percent)  # noqa: S311 - not a secret

    def get(self, name: str) -> Optional[Breaker]:  # noqa: UP045
        """The breaker, or None if there is no page or no such name."""
        word = self._word(name)
        return _breaker(name, word) if word else None

    def all(self) -> list[Breaker]:
        """Every breaker on the page, by name; empty if there is no page."""
        self._look()
        seen = self._seen
        found = [self.get(name) for name in sorted(seen[1])] if seen else []
        return [breaker for breaker in found if breaker is not None]

    def _word(self, name: str) -> int:
        """The word of `name`, 0 if it is unknown."""
        word = self._read(name)
        if not word and self._seen is not None and self._seen[0].generation[0] != self._generation:
            # Some name has a slot since the table was read.
            self._look_at = 0.0
        # Unknown or stale: the agent may have come up, or put another file there.
        if (not word or _is_stale(word)) and time.monotonic() >= self._look_at:
            self._look()
            word = self._read(name)
        return word

    def _read(self, name: str) -> int:
        seen = self._seen
        if seen is None:
            return 0
        known = seen[1].get(name)
        if known is None:
            return 0
        word: int = seen[0].words[known[0]]
        if word >> 16 & 0xFFFFFF != known[1]:
            # The slot is another breaker's now: the table is worth reading at once.
            self._look_at = 0.0
            return 0
        return word

    def _look(self) -> None:
        """Read the name table again; map the file anew if it is another one than before."""
        self._look_at = time.monotonic() + _LOOK_AGAIN_SECONDS
        page = self._seen[0] if self._seen else None
        try:
            status = Path(self._path).stat()
            if page is None or page.inode != (status.st_dev, status.st_ino):
                page = _Mapping(self._path)
            # Read before the table: a name that comes meanwhile has it read again.
            self._generation = page.generation[0]
            self._seen = (page, page.slots())
        except (OSError, ValueError):
            self._seen = None


class _Mapping:
    """One mapped page. Raises OSError or ValueError if the file is no page of this boot."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            self.inode = (status.st_dev, status.st_ino)
            self._map = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        if len(self._map) < HEADER.size:
            raise ValueError("the page is cut short")
        magic, version, header, self._capacity, self._name_bytes, boot, _ = HEADER.unpack_from(self._map)
        self._names_at = header + 8 * self._capacity
        if magic != MAGIC or version != VERSION or boot.decode("ascii", "replace") != _boot_id():
            raise ValueError("not a breaker page of this boot")
        if self._names_at + self._capacity * self._name_bytes > len(self._map):
            raise ValueError("the page is cut short")
        self.generation = memoryview(self._map)[HEADER.size - 4 : HEADER.size].cast("I")
        # Indexing this reads one aligned 8-byte word at once.
        self.words = memoryview(self._map)[header : self._names_at].cast("Q")

    def slots(self) -> dict[str, tuple[int, int]]:
        """Name → (slot, hash) of every slot in use whose name and word belong together."""
        found = {}
        for slot in range(self._capacity):
            word = self.words[slot]
            if word:
                at = self._names_at + slot * self._name_bytes
                encoded = self._map[at : at + self._name_bytes].rstrip(b"\0")
                wanted = _name_hash(encoded)
                if word >> 16 & 0xFFFFFF == wanted:
                    found[encoded.decode("utf-8", "replace")] = (slot, wanted)
        return found


_pages: dict[str, BreakerPage] = {}


def allow(name: str, path: Optional[str] = None) -> bool:  # noqa: UP045
    """`BreakerPage(path).allow(name)` on a page that is mapped once per process."""
    key = path or ""
    page = _pages.get(key)
    if page is None:
        page = _pages.setdefault(key, BreakerPage(path))
    return page.allow(name)


def _is_stale(word: int) -> bool:
    # Half a circle of 2**24 s ahead counts as future, the other half as past.
    return (word >> 40) - int(time.monotonic()) - 1 & SECONDS_MASK > SECONDS_MASK >> 1


def _breaker(name: str, word: int) -> Breaker:
    return Breaker(name, STATES[word & 3], bool(word & 4), _is_stale(word), (word >> 4 & 127) / 100)


def _name_hash(encoded: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in encoded:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value & 0xFFFFFF


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
