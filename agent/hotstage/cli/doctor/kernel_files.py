# SPDX-License-Identifier: Apache-2.0
"""tracefs and securityfs, also where nobody has mounted them: a thread mounts them for itself and reads.

The thread leaves the host's mount namespace first, and its own ends with it: nothing is mounted on the host,
nothing stays. That takes CAP_SYS_ADMIN; without it, what is not mounted is unknown.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from hotstage.cli.doctor.host import Host

TRACEFS = ("sys/kernel/tracing", "sys/kernel/debug/tracing")
SECURITYFS = "sys/kernel/security"
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 1 << 14, 1 << 18
_MODE = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """What the two file systems say; None: not mounted, or not to be read by this user.

    `events` are `group:name`. `tracefs` is where it is mounted on the host; `is_private`: it was mounted for
    this look only.
    """

    events: frozenset[str] | None
    readable: frozenset[str]
    """Events whose layout (`format`) this user can read, which bcc needs."""
    tracefs: str | None
    is_private: bool
    lockdown: str | None
    modules: str | None
    """Security modules in use, comma-separated."""


def read_kernel_files(host: Host) -> KernelFiles:
    """A trial for `Host.once`: as they are, and for what is missing by mounts of its own."""
    found = _read(host.root, is_private=False)
    is_complete = found.events is not None and found.lockdown is not None
    if is_complete or host.root != Path("/"):
        return found
    own: list[KernelFiles] = []
    thread = threading.Thread(target=_read_by_own_mounts, args=(own,), name="doctor-mounts", daemon=True)
    thread.start()
    thread.join()
    if not own:
        return found
    (second,) = own
    return KernelFiles(
        events=second.events if found.events is None else found.events,
        readable=second.readable if found.events is None else found.readable,
        tracefs=found.tracefs,
        is_private=found.events is None and second.events is not None,
        lockdown=found.lockdown or second.lockdown,
        modules=found.modules or second.modules,
    )


def _read_by_own_mounts(into: list[KernelFiles]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        return
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        return
    for place, kind in ((TRACEFS[0], b"tracefs"), (SECURITYFS, b"securityfs")):
        libc.mount(kind, b"/" + os.fsencode(place), kind, ctypes.c_ulong(0), None)
    into.append(_read(Path("/"), is_private=True))


def _read(root: Path, *, is_private: bool) -> KernelFiles:
    tracefs, events, readable = _events(root)
    lockdown = _text(root / SECURITYFS / "lockdown")
    mode = _MODE.search(lockdown or "")
    modules = _text(root / SECURITYFS / "lsm")
    return KernelFiles(
        events=events,
        readable=readable,
        tracefs=tracefs,
        is_private=is_private,
        # the file exists wherever securityfs is mounted and the kernel can lock down at all
        lockdown=mode[1] if mode else ("none" if modules is not None and lockdown is None else None),
        modules=modules,
    )


def _events(root: Path) -> tuple[str | None, frozenset[str] | None, frozenset[str]]:
    for place in TRACEFS:
        found: set[str] = set()
        readable: set[str] = set()
        try:
            for group in os.scandir(root / place / "events"):
                if not group.is_dir():
                    continue
                for event in os.scandir(group.path):
                    layout = Path(event.path) / "format"
                    if event.is_dir() and layout.exists():
                        found.add(f"{group.name}:{event.name}")
                        if os.access(layout, os.R_OK, effective_ids=True):
                            readable.add(f"{group.name}:{event.name}")
        except OSError:
            continue
        if found:
            return place, frozenset(found), frozenset(readable)
    return None, None, frozenset()


def _text(file: Path) -> str | None:
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError:
        return None
