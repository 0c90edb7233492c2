# SPDX-License-Identifier: Apache-2.0
"""Whether a process lives, asked on every tick: by a descriptor that tells of its end, else by `/proc`.

A look into `/proc` costs twenty times as much. Holds a bounded number of descriptors and nothing else.
"""

from __future__ import annotations

import os
import select
from pathlib import Path

from hotstage.small_files import read_small

_HELD_MAX = 128


def process_is_alive(pid: int, proc_root: Path = Path("/proc")) -> bool:
    """Whether the process runs: one that is gone or a zombie does not. Unreadable counts as alive."""
    try:
        fields = read_small(f"{proc_root}/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    return not fields or fields[0] not in (b"Z", b"X", b"x")


class Lives:
    """`lives(pid)` as of now. A pid that is asked for again after its end is whoever has it then."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, select.poll]] = {}  # pid → its descriptor, and who asks it

    def __call__(self, pid: int) -> bool:
        held = self._held.get(pid) or self._hold(pid)
        if held is None:
            return process_is_alive(pid)
        if not held[1].poll(0):
            return True
        self._let_go(pid)
        return False

    def close(self) -> None:
        """Give the descriptors back."""
        for pid in list(self._held):
            self._let_go(pid)

    def _hold(self, pid: int) -> tuple[int, select.poll] | None:
        """None where there is no descriptor: no such process, no such system call, too many files open."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return None
        if len(self._held) >= _HELD_MAX:
            self._let_go(next(iter(self._held)))
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        self._held[pid] = descriptor, poll
        return self._held[pid]

    def _let_go(self, pid: int) -> None:
        os.close(self._held.pop(pid)[0])
