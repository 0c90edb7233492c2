# SPDX-License-Identifier: Apache-2.0
"""Page faults of threads in the GPU path by stage: `page_fault` of `bpf/sched.bpf.c`, on request alone,
because every fault of the host that a user's instruction takes pays for it. Counts go into the scheduler's
map.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotstage.errors import HotstageError
from hotstage.probes import bpf
from hotstage.probes.coverage import Side
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.loader.typed_tracepoints import TypedTracepoints
from hotstage.probes.maps.layout import THREAD_STATE_DTYPE

TRACEPOINT = "exceptions:page_fault_user"
PROGRAMS = ("page_fault",)
_BTF_NAME = b"\0btf_trace_page_fault_user\0"
_BTF = Path("/sys/kernel/btf/vmlinux")
_PAGES, _ROUNDS = 64, 20
_PRICED_STAGE = 17

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Price:
    """ns that a page fault takes longer, of a followed thread and of any other one; measured, least of 20."""

    followed: float
    others: float


class PageFaults:
    """`side` says whether they are counted, or why not. Not thread-safe."""

    def __init__(self, objects: Path = OBJECTS, btf: Path = _BTF) -> None:
        self._objects = objects
        self._btf = btf
        self._programs: TypedTracepoints | None = None
        self._held: dict[str, str] = {}
        self._attaches = 0
        self.price: Price | None = None
        self.side = Side("off", None, None)

    @property
    def epoch(self) -> int | None:
        """Which attach counts now, by number; None while none does."""
        is_counting = self._programs is not None and self._programs.is_attached
        return self._attaches if is_counting else None

    def start(self, shared: Mapping[str, int]) -> None:
        """`shared`: descriptors of all maps that the program names, by name."""
        try:
            self._load(shared)
        except (HotstageError, OSError) as error:
            self.close()
            self.side = Side("off", None, str(error), "see `hotstage doctor`; /proc tells faults by process")
            log.info("no page faults by stage", extra={"reason": str(error)})

    def hold(self, who: str, reason: str | None) -> None:
        """Count none while anybody has a reason not to; None takes back what `who` said."""
        if reason is None:
            self._held.pop(who, None)
        else:
            self._held[who] = reason
        if self._programs is None or self._programs.is_attached == (not self._held):
            return
        if self._held:
            self._programs.detach()
            self.side = Side("off", "libbpf", "; ".join(self._held.values()))
            return
        self._attach(self._programs)

    def close(self) -> None:
        """Detach and let go; safe to call twice."""
        programs, self._programs = self._programs, None
        if programs is not None:
            programs.close()

    def _load(self, shared: Mapping[str, int]) -> None:
        if self._btf.exists() and _BTF_NAME not in self._btf.read_bytes():
            raise HotstageError(f"the kernel has no tracepoint {TRACEPOINT}; x86-64 has it")
        self._programs = TypedTracepoints(self._objects / "sched.bpf.o", PROGRAMS, entries={}, shared=shared)
        self.price = measure(self._programs, shared)
        self._attach(self._programs)

    def _attach(self, programs: TypedTracepoints) -> None:
        try:
            programs.attach()
        except HotstageError as error:
            self.side = Side("off", "libbpf", error.message)
        else:
            self._attaches += 1
            self.side = Side("watching", "libbpf", None)


def measure(programs: TypedTracepoints, shared: Mapping[str, int]) -> Price:
    """Fresh pages touched with the program and without it, in turns, as a followed thread and as none.

    Leaves it detached, and of this process what it counted. Raises OSError where a thread finds no room.
    """
    least = dict.fromkeys(("untraced", "others", "followed"), float("inf"))
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as pages:
        pages.madvise(mmap.MADV_NOHUGEPAGE)
        for number in range(_ROUNDS + 1):  # the first one warms up
            taken = {"untraced": _fault_ns(pages)}
            programs.attach()
            try:
                _fault_ns(pages)  # the first ones after an attach pay for code that is cold
                taken["others"] = _fault_ns(pages)
                with followed(shared):
                    taken["followed"] = _fault_ns(pages)
            finally:
                programs.detach()
            if number:
                least = {name: min(least[name], taken[name]) for name in least}
    return Price(*(max(0.0, least[name] - least["untraced"]) for name in ("followed", "others")))


def _fault_ns(pages: mmap.mmap) -> float:
    pages.madvise(mmap.MADV_DONTNEED)
    place = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    began_ns = time.perf_counter_ns()
    ctypes.memset(place, 1, len(pages))
    return (time.perf_counter_ns() - began_ns) / _PAGES


@contextlib.contextmanager
def followed(shared: Mapping[str, int]) -> Iterator[None]:
    """This thread is one in the GPU path, in a stage, for a while."""
    tid = struct.pack("<I", threading.get_native_id())
    state = np.zeros(1, THREAD_STATE_DTYPE)
    state["tgid"], state["stage"] = os.getpid(), _PRICED_STAGE
    bpf.update(shared["threads"], tid, state.tobytes())
    try:
        yield
    finally:
        bpf.delete(shared["threads"], tid)
