# SPDX-License-Identifier: Apache-2.0
"""A descriptor in a table of its own, held by a thread that does nothing else: so the kernel lets go of many
links at once, however the agent ends.

The kernel waits for each uprobe link that it lets go (about 55 ms, a grace period of RCU) and closes a table
of descriptors one after the other. After kill -9, and no less after the death of a whole control group, every
thread ends by itself and closes what it holds. Nothing is pinned, and no other process is needed.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import gc
import logging
import os
import platform
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

_CLOSE_RANGE = {"x86_64": 436, "aarch64": 436}.get(platform.machine(), -1)
_UNSHARE = 2  # CLOSE_RANGE_UNSHARE, linux/close_range.h
_LAST = 0xFFFFFFFF
_BARRIER_BYTES = 64  # above sizeof(pthread_barrier_t), 32 in glibc and musl on both machines
_GONE_SECONDS = 10.0
_SET_NAME = 15  # PR_SET_NAME, linux/prctl.h

THREAD_NAME = "hotstage-link"
"""What /proc/PID/task/TID/comm shows of a thread that holds a link."""
THREADS_LIMIT = 128
"""Of the whole process: half of what the service's unit allows, as letting go takes threads too."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.calloc.restype = ctypes.c_void_p
_at_once = ctypes.PyDLL(None, use_errno=True)
"""The same without letting other threads run meanwhile: the second table shall last for microseconds."""
_making = threading.Lock()

log = logging.getLogger(__name__)


class KeptDescriptor:
    """Takes over a descriptor: the caller's table has it no more. `close` returns when the kernel let go.

    Raises OSError where the kernel or the limits on threads refuse; the descriptor is then as it was.

    The thread is made with the C library and runs no Python: the interpreter may close files of any thread
    in whichever thread collects garbage, and would close them in the wrong table.
    """

    def __init__(self, fd: int) -> None:
        if len(list(Path("/proc/self/task").iterdir())) >= THREADS_LIMIT:
            raise OSError(errno.EAGAIN, f"this process has {THREADS_LIMIT} threads")
        self._fd = fd
        self._thread = ctypes.c_ulong()
        # Of the C library: the thread may look at it for longer than this object lives.
        self._barrier = ctypes.c_void_p(_libc.calloc(1, _BARRIER_BYTES))
        _libc.pthread_barrier_init(self._barrier, None, 2)
        self._failure = errno.EAGAIN  # unless it is made
        _run_apart(self._make)
        if self._failure:
            _libc.free(self._barrier)
            raise OSError(self._failure, os.strerror(self._failure))
        # The clock of a thread names it: MAKE_THREAD_CPUCLOCK, linux/posix-timers.h
        self._is_open = True
        self._tid = ~(time.pthread_getcpuclockid(self._thread.value) >> 3)
        _libc.pthread_detach(self._thread)
        os.close(fd)

    def close(self) -> None:
        """End the thread and wait until it is gone, and with it the link. Twice does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        _libc.pthread_barrier_wait(self._barrier)
        if _wait_until_gone(self._tid):
            _libc.free(self._barrier)
        else:
            log.warning("a link is not let go yet", extra={"waited_seconds": _GONE_SECONDS})

    def _make(self) -> None:
        _at_once.prctl(_SET_NAME, THREAD_NAME.encode(), 0, 0, 0)  # inherited
        # No signal may meet this thread or its child: handlers write to descriptors that their table lacks.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._failure = _close_range(self._fd + 1, _LAST, _UNSHARE)
        if not self._failure and self._fd:
            self._failure = _close_range(0, self._fd - 1, 0)
        if not self._failure:
            # Waiting at a barrier is what a thread can do that neither ends early nor touches a descriptor.
            wait = ctypes.cast(_at_once.pthread_barrier_wait, ctypes.c_void_p)
            self._failure = _at_once.pthread_create(ctypes.byref(self._thread), None, wait, self._barrier)


def _close_range(first: int, last: int, flags: int) -> int:
    """The kernel's errno, 0 when it did. The first to `_UNSHARE` gives this thread a table of its own."""
    numbers = (ctypes.c_long(_CLOSE_RANGE), ctypes.c_uint(first), ctypes.c_uint(last), ctypes.c_uint(flags))
    return ctypes.get_errno() if _at_once.syscall(*numbers) < 0 else 0


def _run_apart(work: Callable[[], None]) -> None:
    """Run it in a thread, one at a time, while no garbage is collected in any; return when that is gone.

    Where no thread can be had it is not run.

    Not by `threading`, whose threads hand the interpreter's lock to and fro more often than this lasts.
    """
    done, tids = threading.Lock(), list[int]()

    def run() -> None:
        try:
            tids.append(threading.get_native_id())
            work()
        finally:
            done.release()

    done.acquire()
    with _making:
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            _thread.start_new_thread(run, ())
            done.acquire()
        except RuntimeError:  # no thread can be started
            return
        finally:
            if is_collecting:
                gc.enable()
    _wait_until_gone(tids[0])


def _wait_until_gone(tid: int) -> bool:
    """Whether a thread of this process has ended in time, and with it its table."""
    task, deadline = Path(f"/proc/self/task/{tid}"), time.monotonic() + _GONE_SECONDS
    while task.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True
