# SPDX-License-Identifier: Apache-2.0
"""The names of threads as the kernel has them: Python's own stay within Python before 3.14."""

from __future__ import annotations

import ctypes

_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None, use_errno=True)


def name_this_thread(name: str) -> None:
    """What `/proc/PID/task/TID/comm` says from now on; the kernel keeps the first 15 bytes."""
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
