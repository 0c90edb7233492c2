# SPDX-License-Identifier: Apache-2.0
"""The kernel's own news of mappings, forks, execs and exits: perf's side-band records, one ring for each CPU.

A dummy software event costs other processes nothing per system call. This module opens, drains and decodes;
it looks at no file and keeps no state about processes. `LOST` records say how many were dropped: the reader
must rescan.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import select
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotstage.errors import PrivilegeError

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_FLAG_CLOSE_ON_EXEC = 8
_ATTR_SIZE = 96
_SAMPLE_TID_TIME = 2 | 4
# mmap 8, comm 9, task 13, watermark 14, sample_id_all 18, mmap2 23, comm_exec 24, use_clockid 25; data
# mappings (17) stay off. A count of events (`wakeup_events`) wakes for samples only: side-band records need
# the watermark.
_ATTR_BITS = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 14 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 25
_CLOCK_MONOTONIC = 1
_RING_PAGES = 32
_PAGE = mmap.PAGESIZE
_LOST, _COMM, _EXIT, _FORK, _MMAP2 = 2, 3, 4, 7, 10
_TRAILER = struct.Struct("<IIQ")  # pid, tid, CLOCK_MONOTONIC ns: what sample_id_all appends
_MISC_BUILD_ID, _MISC_EXEC = 1 << 14, 1 << 13


@dataclass(frozen=True, slots=True)
class Mapped:
    """A process mapped code from a file; `path` is as it sees it. `at_ns` is CLOCK_MONOTONIC, as everywhere
    here.
    """

    pid: int
    at_ns: int
    path: str
    device: tuple[int, int]
    inode: int


@dataclass(frozen=True, slots=True)
class Executed:
    """The process replaced its program: all its earlier mappings are gone."""

    pid: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Forked:
    """A new process, born with its parent's mappings (threads are not reported)."""

    pid: int
    parent: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Exited:
    """A thread ended; the process has, when no other thread of it is left."""

    pid: int
    tid: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The ring was full: this many records are missing."""

    records: int


Event = Mapped | Executed | Forked | Exited | Lost


def decode(records: bytes) -> Iterator[Event]:
    """Records back to back → events; unknown kinds, anonymous mappings and cut tails are skipped."""
    at = 0
    while at + 8 <= len(records):
        kind, misc, size = struct.unpack_from("<IHH", records, at)
        if size < 8 or at + size > len(records):
            return
        event = _decode_one(kind, misc, records[at : at + size])
        if event is not None:
            yield event
        at += size


def _decode_one(kind: int, misc: int, record: bytes) -> Event | None:
    if len(record) < 24 + (0 if kind == _LOST else _TRAILER.size):
        return None
    if kind == _LOST:
        return Lost(struct.unpack_from("<Q", record, 16)[0])
    at_ns = _TRAILER.unpack_from(record, len(record) - _TRAILER.size)[2]
    pid, second, tid, _ = struct.unpack_from("<IIII", record, 8)
    match kind:
        case 4:  # EXIT: pid, parent, tid, parent's tid
            return Exited(pid, tid, at_ns)
        case 7:  # FORK: a new thread keeps its process
            return Forked(pid, second, at_ns) if pid == tid else None
        case 3:  # COMM: pid, tid, name
            return Executed(pid, at_ns) if misc & _MISC_EXEC else None
        case 10:
            return _mapped(misc, record, at_ns)
    return None


def _mapped(misc: int, record: bytes, at_ns: int) -> Mapped | None:
    path = record[72 : -_TRAILER.size].split(b"\0", 1)[0]
    if not path.startswith(b"/") or path.startswith(b"//"):
        return None
    major, minor, inode = (0, 0, 0) if misc & _MISC_BUILD_ID else struct.unpack_from("<IIQ", record, 40)
    pid = struct.unpack_from("<I", record, 8)[0]
    return Mapped(pid, at_ns, path.decode("utf-8", "surrogateescape"), (major, minor), inode)


class Sideband:
    """One ring per online CPU, all of them in one epoll, with `wake_fd` of the caller beside them.

    Raises PrivilegeError when the kernel does not allow it (CAP_PERFMON is needed).
    """

    def __init__(
        self, wake_fd: int | None = None, *, online: Path = Path("/sys/devices/system/cpu/online")
    ) -> None:
        self._online = online
        self._rings: dict[int, _Ring] = {}
        self._epoll = select.epoll()
        self._wake_fd = wake_fd
        try:
            if wake_fd is not None:
                self._epoll.register(wake_fd, select.EPOLLIN)
            self.follow_cpus()
        except BaseException:
            self.close()
            raise

    def follow_cpus(self) -> bool:
        """Open rings for CPUs that came online since; True when there were any (a rescan is due then)."""
        new = [cpu for cpu in parse_cpu_list(self._online.read_text()) if cpu not in self._rings]
        for cpu in new:
            ring = _Ring(cpu)
            self._rings[cpu] = ring
            self._epoll.register(ring.fd, select.EPOLLIN)
        return bool(new)

    def wait(self, timeout_seconds: float) -> None:
        """Return when a record or the caller's wake-up is there, at the latest after `timeout_seconds`."""
        self._epoll.poll(max(timeout_seconds, 0.0))

    def drain(self) -> list[Event]:
        """All events so far, oldest first."""
        events: list[Event] = []
        for ring in self._rings.values():
            events.extend(decode(ring.take()))
        events.sort(key=lambda event: 0 if isinstance(event, Lost) else event.at_ns)
        return events

    def close(self) -> None:
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        self._epoll.close()


class _Ring:
    """The event of one CPU and its mapped ring."""

    def __init__(self, cpu: int) -> None:
        self.fd = _open_event(cpu)
        try:
            self._memory = mmap.mmap(self.fd, (1 + _RING_PAGES) * _PAGE)
        except OSError:
            os.close(self.fd)
            raise

    def take(self) -> bytes:
        """Everything between tail and head; the ring is free again afterwards."""
        head, tail = struct.unpack_from("<QQ", self._memory, 1024)
        size = _RING_PAGES * _PAGE
        start, length = tail % size, head - tail
        if not length:
            return b""
        first = min(length, size - start)
        data = (
            self._memory[_PAGE + start : _PAGE + start + first] + self._memory[_PAGE : _PAGE + length - first]
        )
        struct.pack_into("<Q", self._memory, 1032, head)
        return data

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)


def _open_event(cpu: int) -> int:
    attr = bytearray(_ATTR_SIZE)
    struct.pack_into("<IIQ", attr, 0, 1, _ATTR_SIZE, 9)  # software event, dummy
    struct.pack_into("<Q", attr, 24, _SAMPLE_TID_TIME)
    struct.pack_into("<QI", attr, 40, _ATTR_BITS, 1)  # wake at the first byte
    struct.pack_into("<i", attr, 92, _CLOCK_MONOTONIC)
    number = _PERF_EVENT_OPEN[platform.machine()]
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * _ATTR_SIZE).from_buffer(attr)
    fd = int(libc.syscall(ctypes.c_long(number), buffer, -1, cpu, -1, ctypes.c_ulong(_FLAG_CLOSE_ON_EXEC)))
    if fd >= 0:
        return fd
    error = ctypes.get_errno()
    if error in (1, 13):
        raise PrivilegeError(
            f"the kernel refuses to report mappings (perf_event_open: {os.strerror(error)})",
            remedy="run as root or with CAP_PERFMON",
        )
    raise OSError(error, f"perf_event_open on CPU {cpu}: {os.strerror(error)}")


def parse_cpu_list(text: str) -> list[int]:
    """`0-3,8` → [0, 1, 2, 3, 8]."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus
