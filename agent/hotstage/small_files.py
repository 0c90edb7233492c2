# SPDX-License-Identifier: Apache-2.0
"""A small file of proc, sys or a cgroup, whole, in as few system calls as there can be. Knows no format.

The agent reads some dozens of them a second. `Path.open` makes three more calls for each, to find out how to
buffer what is read once.
"""

from __future__ import annotations

import os
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_CLOEXEC
LIMIT = 65_536


def read_small(path: str | Path, limit: int = LIMIT) -> bytes:
    """At most `limit` bytes from its begin. Raises OSError."""
    descriptor = os.open(path, _FLAGS)
    try:
        data = os.read(descriptor, limit)
        # The kernel may give such a file in pieces: it ends where there is no more.
        while data and len(data) < limit and (more := os.read(descriptor, limit - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)


def text_of(path: str | Path, limit: int = LIMIT) -> str:
    """The same as text, `\\ufffd` for what is none; empty where it cannot be read."""
    try:
        return read_small(path, limit).decode("utf-8", "replace")
    except OSError:
        return ""
