# SPDX-License-Identifier: Apache-2.0
"""The one place that makes the bpf(2) and perf_event_open(2) system calls; structures as in <linux/bpf.h>.

It knows no map and no program by name. Every failure is an OSError with the kernel's errno.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSCALLS = {"x86_64": (321, 298), "aarch64": (280, 241)}
_BPF, _PERF_EVENT_OPEN = _SYSCALLS.get(platform.machine(), (-1, -1))

MAP_LOOKUP = 1
MAP_UPDATE = 2
MAP_DELETE = 3
PROGRAM_RUN = 10
OBJECT_INFO = 15
MAP_TAKE = 21
MAP_LOOKUP_BATCH = 24
LINK_CREATE = 28

ATTACH_PERF_EVENT = 41
ATTACH_UPROBE_MULTI = 48
ATTACH_UPROBE_SESSION = 57

_ATTRIBUTE_BYTES = 128
_PERF_CLOSE_ON_EXEC = 8
_PERF_IOC_ENABLE = 0x2400

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True, slots=True)
class MapInfo:
    """What the kernel says about a map."""

    map_type: int
    key_bytes: int
    value_bytes: int
    max_entries: int
    flags: int
    name: str


def bpf(command: int, attributes: ctypes.Array[ctypes.c_char] | bytes) -> int:
    """One bpf(2) call. A ctypes buffer is written back by the kernel, bytes are copied. Raises OSError."""
    if isinstance(attributes, bytes):
        attributes = ctypes.create_string_buffer(attributes, max(_ATTRIBUTE_BYTES, len(attributes)))
    result = _libc.syscall(
        ctypes.c_long(_BPF),
        ctypes.c_long(command),
        ctypes.byref(attributes),
        ctypes.c_ulong(len(attributes)),
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def map_info(fd: int) -> MapInfo:
    """Type, sizes and name of the map behind `fd`."""
    info = ctypes.create_string_buffer(256)
    bpf(OBJECT_INFO, struct.pack("<IIQ", fd, len(info), ctypes.addressof(info)))
    map_type, _map_id, key_bytes, value_bytes, max_entries, flags = struct.unpack_from("<6I", info)
    name = info.raw[24:40].split(b"\0", 1)[0].decode()
    return MapInfo(map_type, key_bytes, value_bytes, max_entries, flags, name)


def lookup(fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """The value of one key, None when there is none."""
    value = ctypes.create_string_buffer(value_bytes)
    held = ctypes.create_string_buffer(key, len(key))
    try:
        bpf(MAP_LOOKUP, struct.pack("<I4xQQQ", fd, ctypes.addressof(held), ctypes.addressof(value), 0))
    except FileNotFoundError:
        return None
    return value.raw


def update(fd: int, key: bytes | None, value: bytes) -> None:
    """Set the value of one key; without a key, push onto a queue."""
    held_key = ctypes.create_string_buffer(key, len(key)) if key is not None else None
    held_value = ctypes.create_string_buffer(value, len(value))
    address = ctypes.addressof(held_key) if held_key is not None else 0
    bpf(MAP_UPDATE, struct.pack("<I4xQQQ", fd, address, ctypes.addressof(held_value), 0))


def pop(fd: int, value_bytes: int) -> bytes | None:
    """The next value of a queue, None where it is empty."""
    value = ctypes.create_string_buffer(value_bytes)
    try:
        bpf(MAP_TAKE, struct.pack("<I4xQQQ", fd, 0, ctypes.addressof(value), 0))
    except FileNotFoundError:
        return None
    return value.raw


def run(program_fd: int, arguments: bytes) -> int:
    """Run a raw tracepoint's program once, with these as its arguments; what it returned. Raises OSError."""
    held = ctypes.create_string_buffer(arguments, len(arguments))
    attributes = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    # prog_fd, .., ctx_size_in, .., ctx_in
    struct.pack_into(
        "<I36xI4xQ",
        attributes,
        0,
        program_fd,
        len(arguments),
        ctypes.addressof(held),
    )
    bpf(PROGRAM_RUN, attributes)
    returned: int = struct.unpack_from("<I", attributes, 4)[0]
    return returned


def delete(fd: int, key: bytes) -> bool:
    """Remove one key; False when it was not there."""
    held = ctypes.create_string_buffer(key, len(key))
    try:
        bpf(MAP_DELETE, struct.pack("<I4xQ", fd, ctypes.addressof(held)))
    except FileNotFoundError:
        return False
    return True


def locked_bytes(fd: int) -> int:
    """Memory that a map holds in the kernel, as it accounts for it."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "memlock":
            return int(value)
    return 0


def link_multi(
    program_fd: int,
    attach_type: int,
    path: str,
    places: Sequence[tuple[int, int, int]],
    *,
    on_return: bool,
    pid: int = 0,
) -> int:
    """One link of a program at many places of `path`; its descriptor. Raises OSError.

    A place is (file offset, cookie, file offset of a semaphore that the kernel holds up meanwhile or 0). For
    all processes, or for one `pid`: all others then meet no trap. Kernels before about 6.10 take it for a
    thread.
    """
    count = len(places)
    offsets, cookies, semaphores = zip(*places, strict=True)
    held_path = ctypes.create_string_buffer(os.fsencode(path))
    held_offsets = (ctypes.c_uint64 * count)(*offsets)
    held_cookies = (ctypes.c_uint64 * count)(*cookies)
    held_semaphores = (ctypes.c_uint64 * count)(*semaphores) if any(semaphores) else None
    return bpf(
        LINK_CREATE,
        struct.pack(
            "<IIIIQQQQIII4x",
            program_fd,
            0,
            attach_type,
            0,
            ctypes.addressof(held_path),
            ctypes.addressof(held_offsets),
            ctypes.addressof(held_semaphores) if held_semaphores is not None else 0,
            ctypes.addressof(held_cookies),
            count,
            1 if on_return else 0,
            pid,
        ),
    )


def link_perf_event(
    program_fd: int,
    path: str,
    offset: int,
    cookie: int,
    *,
    semaphore_offset: int = 0,
    on_return: bool,
    pid: int = -1,
) -> int:
    """A link of a program at one file offset through a perf uprobe event; the descriptor. Raises OSError.

    For all processes, or for one thread.
    """
    if semaphore_offset >= 1 << 32:  # the event's format has 32 bits for it
        raise OSError(errno.EINVAL, "its semaphore lies beyond 4 GiB")
    event_fd = _open_uprobe_event(path, offset, semaphore_offset, on_return=on_return, pid=pid)
    try:
        attributes = struct.pack("<IIIIQ", program_fd, event_fd, ATTACH_PERF_EVENT, 0, cookie)
        link_fd = bpf(LINK_CREATE, attributes)
        if _libc.ioctl(event_fd, ctypes.c_ulong(_PERF_IOC_ENABLE), 0) < 0:
            code = ctypes.get_errno()
            os.close(link_fd)
            raise OSError(code, os.strerror(code))
        return link_fd
    finally:
        os.close(event_fd)


def _open_uprobe_event(path: str, offset: int, semaphore_offset: int, *, on_return: bool, pid: int) -> int:
    with open("/sys/bus/event_source/devices/uprobe/type", encoding="ascii") as file:  # noqa: PTH123
        event_type = int(file.read())
    held_path = ctypes.create_string_buffer(os.fsencode(path))
    # perf_event_attr: type, size, config (bit 0 = on return, 32.. = semaphore), period, ..., config1 = path,
    # config2 = offset
    attributes = ctypes.create_string_buffer(
        struct.pack(
            "<IIQQQQQIIQQ40x",
            event_type,
            112,
            (1 if on_return else 0) | semaphore_offset << 32,
            0,
            0,
            0,
            0,
            0,
            0,
            ctypes.addressof(held_path),
            offset,
        )
    )
    fd = _libc.syscall(
        ctypes.c_long(_PERF_EVENT_OPEN),
        ctypes.byref(attributes),
        ctypes.c_long(pid),
        ctypes.c_long(0 if pid < 0 else -1),
        ctypes.c_long(-1),
        ctypes.c_ulong(_PERF_CLOSE_ON_EXEC),
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(fd)
