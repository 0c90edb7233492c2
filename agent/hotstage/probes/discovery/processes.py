# SPDX-License-Identifier: Apache-2.0
"""Which processes there are and what code they have mapped, from an injected `/proc`.

Reads procfs text only: it opens no library and knows no catalogue. A process that goes while it is being
read is simply absent; a process is (pid, start time), because pids come back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hotstage.small_files import read_small

MAPS_BYTES_LIMIT = 16 << 20
"""Bytes of one process's `maps` that are read: a hostile process can have 65,530 mappings with 4 KiB names.
"""

_LINE_BYTES_LIMIT = 8 << 10
_DELETED = b" (deleted)"
_DEAD_STATES = (b"Z", b"X", b"x")
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One life of a pid: `start_ticks` is field 22 of `/proc/PID/stat`, clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """One executable file mapping. `path` is as the process sees it; `device` as `maps` prints it (major,
    minor).
    """

    start: int
    end: int
    file_offset: int
    device: tuple[int, int]
    inode: int
    path: str
    is_deleted: bool

    @property
    def map_files_name(self) -> str:
        """The entry below `/proc/PID/map_files` that opens this very file, deleted or not."""
        return f"{self.start:x}-{self.end:x}"


@dataclass(frozen=True, slots=True)
class ProcessView:
    """What one look at a process found; `is_truncated` when its `maps` went past the limit."""

    identity: ProcessId
    name: str
    mappings: tuple[Mapping, ...]
    is_truncated: bool


class ProcessTable:
    """Reads processes below `root` (`/proc`, or a fake of it in a test)."""

    def __init__(self, root: Path = Path("/proc"), *, maps_bytes_limit: int = MAPS_BYTES_LIMIT) -> None:
        self.root = root
        self._maps_bytes_limit = maps_bytes_limit

    def pids(self) -> list[int]:
        """All process ids, ascending; threads are not listed."""
        return sorted(int(entry.name) for entry in self.root.iterdir() if entry.name.isdecimal())

    def user(self, pid: int) -> int | None:
        """The real user id of `pid`; None when it is gone. Not its folder's owner: that is root's for whoever
        forbids to be dumped.
        """
        try:
            status = read_small(f"{self.root}/{pid}/status")
            return int(status.partition(b"\nUid:")[2].split(maxsplit=1)[0])
        except (OSError, ValueError, IndexError):
            return None

    def identity(self, pid: int) -> ProcessId | None:
        """This life of `pid`; None when it is gone or a zombie (whose memory and libraries are gone)."""
        try:
            stat = read_small(f"{self.root}/{pid}/stat")
        except OSError:
            return None
        return parse_identity(pid, stat)

    def is_alive(self, process: ProcessId) -> bool:
        """True while any thread of this very life of the process runs: its leader may have ended before."""
        folder = self.root / str(process.pid)
        try:
            stat = read_small(folder / "stat")
            threads = [entry.name for entry in (folder / "task").iterdir()]
        except OSError:
            return False
        if _start_ticks(stat) != process.start_ticks:
            return False
        return any(self._is_running(folder / "task" / tid / "stat") for tid in threads)

    def _is_running(self, stat: Path) -> bool:
        try:
            return _state(read_small(stat)) not in _DEAD_STATES
        except OSError:
            return False

    def name(self, pid: int) -> str:
        """The command name as the kernel keeps it (15 bytes); empty when the process is gone."""
        try:
            raw = read_small(f"{self.root}/{pid}/comm")
        except OSError:
            return ""
        return printable(raw.rstrip(b"\n").decode("utf-8", "replace"))

    def look(self, pid: int, is_wanted: Callable[[str], bool]) -> ProcessView | None:
        """The wanted executable mappings of `pid`; None when it is gone or its `maps` may not be read.

        The identity is read before and after: a pid that changed hands in between is treated as gone.
        """
        before = self.identity(pid)
        if before is None:
            return None
        try:
            mappings, is_truncated = self._mappings(pid, is_wanted)
        except OSError:
            return None
        if self.identity(pid) != before:
            return None
        return ProcessView(before, self.name(pid), mappings, is_truncated)

    def _mappings(self, pid: int, is_wanted: Callable[[str], bool]) -> tuple[tuple[Mapping, ...], bool]:
        found: list[Mapping] = []
        left = self._maps_bytes_limit
        with (self.root / str(pid) / "maps").open("rb") as lines:
            while line := lines.readline(_LINE_BYTES_LIMIT):
                left -= len(line)
                if left < 0:
                    return tuple(found), True
                mapping = parse_mapping(line)
                if mapping is not None and is_wanted(mapping.path):
                    found.append(mapping)
        return tuple(found), False


def parse_identity(pid: int, stat: bytes) -> ProcessId | None:
    """(pid, start time) of a `/proc/PID/stat` line; None for a zombie, a dead one or a cut line."""
    start_ticks = _start_ticks(stat)
    if start_ticks is None or _state(stat) in _DEAD_STATES:
        return None
    return ProcessId(pid, start_ticks)


def _state(stat: bytes) -> bytes:
    """The one-letter state; the name before it may hold spaces and brackets, so count from the last one."""
    return stat.rpartition(b")")[2].split(maxsplit=1)[0] if b")" in stat else b"X"


def _start_ticks(stat: bytes) -> int | None:
    fields = stat.rpartition(b")")[2].split()
    return int(fields[19]) if b")" in stat and len(fields) >= 20 else None


def parse_mapping(line: bytes) -> Mapping | None:
    """One line of `maps`; None unless it is an executable mapping of a file."""
    fields = line.rstrip(b"\n").split(maxsplit=5)
    if len(fields) < 6 or fields[1][2:3] != b"x" or not fields[5].startswith(b"/"):
        return None
    path = fields[5]
    is_deleted = path.endswith(_DELETED)
    if is_deleted:
        path = path[: -len(_DELETED)]
    start, _, end = fields[0].partition(b"-")
    major, _, minor = fields[3].partition(b":")
    unescaped = _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), path)
    return Mapping(
        start=int(start, 16),
        end=int(end, 16),
        file_offset=int(fields[2], 16),
        device=(int(major, 16), int(minor, 16)),
        inode=int(fields[4]),
        path=unescaped.decode("utf-8", "surrogateescape"),
        is_deleted=is_deleted,
    )


def printable(text: str, limit: int = 256) -> str:
    """`text` with control characters and undecodable bytes replaced, at most `limit` long: it comes from
    strangers.
    """
    shown = "".join(c if c.isprintable() else "?" for c in text[:limit])
    return shown.encode("utf-8", "replace").decode()


def distinct_files(mappings: tuple[Mapping, ...]) -> Iterator[Mapping]:
    """One mapping for each file: a library has several executable segments once it is probed or patched."""
    seen: set[tuple[tuple[int, int], int]] = set()
    for mapping in mappings:
        key = (mapping.device, mapping.inode)
        if key not in seen:
            seen.add(key)
            yield mapping
