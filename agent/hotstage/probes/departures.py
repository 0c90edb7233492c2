# SPDX-License-Identifier: Apache-2.0
"""Who has gone and when their entries may go: not before a while after the exit, so that a last read sees
them.

Told by the discovery thread, asked by the tick. It deletes nothing itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

THREADS_LIMIT = 65_536
THREAD_LINGER_NS = 1_000_000_000
"""A thread of a process that lives needs no longer: ten fast ticks and one slow one have seen its last state,
and a server with a thread for each request would fill `threads` with dead ones.
"""


class Departures:
    """Processes and threads that ended, until `linger_ns` has passed."""

    def __init__(self, linger_ns: int) -> None:
        self._linger_ns = linger_ns
        self._thread_linger_ns = min(linger_ns, THREAD_LINGER_NS)
        self._lock = threading.Lock()
        self._processes: OrderedDict[int, int] = OrderedDict()
        self._threads: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def process_gone(self, pid: int, at_ns: int) -> None:
        with self._lock:
            self._processes[pid] = at_ns

    def process_missing(self, pid: int, at_ns: int) -> None:
        """Found gone, though nobody told of its exit (it was never followed): the first finding counts."""
        with self._lock:
            self._processes.setdefault(pid, at_ns)

    def process_seen(self, pid: int) -> None:
        """The pid is in use again: entries under it belong to the living."""
        with self._lock:
            self._processes.pop(pid, None)

    def thread_gone(self, pid: int, tid: int, at_ns: int) -> None:
        """A thread ended; the process's own last thread is covered by `process_gone`."""
        with self._lock:
            self._threads[tid] = (pid, at_ns)
            while len(self._threads) > THREADS_LIMIT:
                self._threads.popitem(last=False)

    def due(self, now_ns: int) -> tuple[list[int], list[tuple[int, int]]]:
        """(pids, (pid, tid)s) whose time has come; each is handed out once."""
        with self._lock:
            pids = [pid for pid, at_ns in self._processes.items() if now_ns - at_ns >= self._linger_ns]
            tids = [
                (pid, tid)
                for tid, (pid, at_ns) in self._threads.items()
                if now_ns - at_ns >= self._thread_linger_ns
            ]
            for pid in pids:
                del self._processes[pid]
            for _, tid in tids:
                del self._threads[tid]
        return pids, tids
