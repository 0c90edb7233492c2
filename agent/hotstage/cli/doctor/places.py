# SPDX-License-Identifier: Apache-2.0
"""Checks of ports and directories: tried for real, and left as they were."""

from __future__ import annotations

import errno
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.holders import port_holder
from hotstage.cli.doctor.host import Host

PLACES = Area.PLACES
_LEAST_FREE_BYTES = 256 << 20
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "fuse.sshfs", "9p", "afs"})
_PASSING = {"tmpfs": "after a reboot", "overlay": "with its container"}
_FILES_MAX = 10_000


def check_ports(host: Host) -> Iterator[Finding]:
    for name, key, listen in (
        ("API", "http.listen", host.config.http.listen),
        ("explorer", "explore.listen", host.config.explore.listen),
    ):
        yield try_port(host, name, key, listen)


def try_port(host: Host, name: str, key: str, listen: str) -> Finding:
    """Whether the address can be bound now; if not, by whom it is held."""
    address, _, port = listen.rpartition(":")
    address = address.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    data: dict[str, object] = {"listen": listen, "holder": None}
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return _in_use(host, name, key, listen, int(port))
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Finding(
            PLACES, name, Status.FAIL, f"{listen} cannot be bound: {reason}",
            f"set {key} to an address of this host", data=data,
        )  # fmt: skip
    return Finding(PLACES, name, Status.OK, f"{listen} is free", data=data)


def _in_use(host: Host, name: str, key: str, listen: str, port: int) -> Finding:
    holder = port_holder(host, port)
    data = {"listen": listen, "holder": holder}
    if holder is not None and "hotstage" in holder:
        return Finding(PLACES, name, Status.OK, f"{listen} is held by hotstage itself ({holder})", data=data)
    who = holder or "a process that this user cannot see"
    return Finding(
        PLACES, name, Status.WARN, f"{listen} is in use by {who}", f"free it, or set another {key}", data=data
    )


def check_directories(host: Host) -> Iterator[Finding]:
    yield try_directory(host, "state directory", "store.directory", host.config.store.directory)
    if host.config.notify.destinations:
        directory = host.config.notify.directory
        yield try_directory(host, "notifier's directory", "notify.directory", directory)


def try_directory(host: Host, name: str, key: str, directory: str) -> Finding:
    """Whether a database can live there: writable, not on a network file system, with room."""
    place = Path(directory)
    existing = next(folder for folder in (place, *place.parents) if folder.exists())
    kind = file_system(host, existing)
    data: dict[str, object] = {"directory": directory, "exists": existing == place, "file_system": kind}
    try:
        with tempfile.TemporaryFile(dir=existing):
            free_bytes = shutil.disk_usage(existing).free
    except OSError as error:
        denied = error.errno in (errno.EACCES, errno.EPERM)
        remedy = (
            f"run as its owner, or set {key}" if denied else f"set {key} to a directory that can be written"
        )
        return Finding(PLACES, name, Status.FAIL, f"{directory}: {error.strerror}", remedy, denied, data=data)
    used = _size(place) if existing == place else 0
    data |= {"free_bytes": free_bytes, "used_bytes": used}
    what = f"{used / 2**20:.1f} MiB used" if existing == place else f"will be made in {existing}"
    detail = f"{directory}: {what}, {free_bytes / 2**30:.1f} GiB free on {kind or 'an unknown file system'}"
    if kind in _NETWORK:
        return Finding(
            PLACES, name, Status.FAIL, f"{detail}: SQLite's journal does not work on a network file system",
            f"set {key} to a local disk", data=data,
        )  # fmt: skip
    if free_bytes < _LEAST_FREE_BYTES:
        return Finding(PLACES, name, Status.WARN, detail, "make room, or lower store.max_bytes", data=data)
    if kind in _PASSING:
        return Finding(
            PLACES, name, Status.WARN, f"{detail}: what is stored there is gone {_PASSING[kind]}",
            f"set {key} to a disk, or mount a volume there", data=data,
        )  # fmt: skip
    return Finding(PLACES, name, Status.OK, detail, data=data)


def file_system(host: Host, folder: Path) -> str | None:
    """The kind of file system that holds `folder`, by the longest mount point above it."""
    best, kind = -1, None
    for line in (host.text("proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        if "-" not in fields or len(fields) < 10:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        if folder.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), fields[fields.index("-") + 1]
    return kind


def _size(folder: Path) -> int:
    total = 0
    for position, entry in enumerate(folder.rglob("*")):
        if position == _FILES_MAX:
            break
        try:
            total += entry.lstat().st_size if entry.is_file() else 0
        except OSError:
            continue
    return total
