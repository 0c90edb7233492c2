# SPDX-License-Identifier: Apache-2.0
"""From here on this process opens for reading only what lies below some places, whoever it is. One-way.

Landlock (Linux 5.13, and in the list of CONFIG_LSM or lsm=). Writing and executing are taken away where
asked; what is open stays open. Standard library only; sandboxed processes may not mount: mounts come first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_PATH_BENEATH = _VERSION = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3  # <linux/landlock.h>
_EVERY_ACCESS = (1 << 13) - 1  # of its first version: execute, write, read, make and remove
_PR_SET_NO_NEW_PRIVS = 38
_ABSENT = (errno.ENOSYS, errno.EOPNOTSUPP)


def is_here() -> bool:
    """Whether this kernel has Landlock."""
    return int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)) > 0


def read_only_below(places: Iterable[Path], *, nothing_else: bool = False) -> bool:
    """Places that do not exist are left out. False: this kernel has no Landlock. Raises OSError.

    `nothing_else`: no file is written, made, removed or executed either, wherever it lies.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = struct.pack("<Q", _EVERY_ACCESS if nothing_else else _READ_FILE | _READ_DIR)
    rules = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        if ctypes.get_errno() in _ABSENT:
            return False
        raise _error("landlock_create_ruleset")
    try:
        for place in places:
            _allow(libc, rules, place)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise _error("no_new_privs")
        if libc.syscall(_RESTRICT_SELF, rules, 0):
            raise _error("landlock_restrict_self")
    finally:
        os.close(rules)
    return True


def _allow(libc: ctypes.CDLL, rules: int, place: Path) -> None:
    try:
        fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        access = _READ_FILE | _READ_DIR if place.is_dir() else _READ_FILE
        rule = struct.pack("<Qi", access, fd)
        is_refused = libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
        # EBADFD: a file that has only memory behind it; the kernel asks nobody who opens it again.
        if is_refused and ctypes.get_errno() != errno.EBADFD:
            raise _error(f"landlock_add_rule for {place}")
    finally:
        os.close(fd)


def _error(what: str) -> OSError:
    return OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
