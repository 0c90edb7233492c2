# SPDX-License-Identifier: Apache-2.0
"""Before someone else's code is loaded: the process that does it gives up every capability it was handed.

Reading GPUs and looking at a library need none. It keeps its uid, and none of them comes back.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_VERSION_3 = 0x20080522  # linux/capability.h
_WORDS = 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """32 capabilities of each set."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def give_up_capabilities() -> None:
    """Empty effective, permitted, inheritable and ambient sets for good; of this thread and those it starts.

    Raises OSError if the kernel refuses; call it before any thread is started.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "no_new_privs")
    # Clears the ambient set too, which is never larger than the permitted one.
    _check(libc.capset(ctypes.byref(_Header(_VERSION_3, 0)), (_Sets * _WORDS)()), "capset")
    _check(libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0), "ambient set")


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
