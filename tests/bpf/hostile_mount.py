# SPDX-License-Identifier: Apache-2.0
"""A file system that answers until it is told to stop: one file, served over /dev/fuse by its own process.

    python hostile_mount.py MOUNTPOINT FILE [SECONDS]      (prints "ready"; a line on stdin freezes it)

Each read takes so many seconds. What it stands for: a dead NFS server, a container's own FUSE mount that
means harm, an lxcfs (what containers see as /proc/stat) that is overloaded or hangs.
"""

from __future__ import annotations

import ctypes
import os
import select
import stat
import struct
import sys
import time
from pathlib import Path

ROOT, FILE = 1, 2
HEADER, REPLY = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, OPENDIR, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 15, 26, 27, 36, 42
ENOENT, ENOSYS = 2, 38


def attributes(node: int, size: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o755
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, body: bytes, name: bytes, data: bytes) -> bytes | int:
    """The reply's body, or an errno. Nothing may be cached: every look-up asks again."""
    size = len(data) if node == FILE else 0
    if opcode == INIT:
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 10, 65536, 1, 16, 0, 0, *(0,) * 7)
    if opcode == LOOKUP:
        if body.rstrip(b"\0") != name:
            return ENOENT
        return struct.pack("<QQQQII", FILE, 0, 0, 0, 0, 0) + attributes(FILE, len(data))
    if opcode == GETATTR:
        return struct.pack("<QII", 0, 0, 0) + attributes(node, size)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    if opcode == READ:
        offset, length = struct.unpack_from("<QI", body, 8)
        return data[offset : offset + length]
    return ENOSYS


def serve(device: int, name: bytes, data: bytes, read_seconds: float) -> None:
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in readable:
            sys.stdin.readline()  # frozen: requests wait until this process ends
            print("frozen", flush=True)
            sys.stdin.readline()
            return
        request = os.read(device, 1 << 17)
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        if opcode in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        if opcode == READ:
            time.sleep(read_seconds)
        reply = answer(opcode, node, request[HEADER.size :], name, data)
        error, body = (-reply, b"") if isinstance(reply, int) else (0, reply)
        os.write(device, REPLY.pack(REPLY.size + len(body), error, unique) + body)


def main() -> None:
    mountpoint, source = Path(sys.argv[1]), Path(sys.argv[2])
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hostile", os.fsencode(mountpoint), b"fuse", 0, options) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    try:
        serve(device, os.fsencode(source.name), source.read_bytes(), float("".join(sys.argv[3:4]) or 0))
    finally:
        libc.umount2(os.fsencode(mountpoint), 2)


if __name__ == "__main__":
    main()
