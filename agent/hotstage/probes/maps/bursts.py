# SPDX-License-Identifier: Apache-2.0
"""The maps behind prefill and decode by work: ended bursts by thread, and what user space made of them.

Structures as in bpf/include/abi.h; what they mean is in bpf/include/step_work.h. Any thread may call.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf

BURSTS = 256
"""Bursts that a thread's ring holds."""
BURST_DTYPE = np.dtype(
    [
        ("head_eighths", "<u4"),
        ("launches", "<u4"),
        ("input_bytes", "<u4"),
        ("least_input", "<u4"),
        ("output_bytes", "<u4"),
    ]
)
BURST_RING_DTYPE = np.dtype(
    [("tgid", "<u4"), ("pad", "<u4"), ("written", "<u8"), ("bursts", BURST_DTYPE, (BURSTS,))]
)
PHASE_LIMITS_DTYPE = np.dtype(
    [
        (name, "<u4")
        for name in (
            "tgid",
            "decode_least",
            "decode_most",
            "decode_input",
            "prefill_least",
            "prompt_least",
            "prompt_most",
        )
    ]
)
THREAD_FIELDS = [
    ("head_eighths", "<u4"),
    ("input_bytes", "<u4"),
    ("least_input", "<u4"),
    ("output_bytes", "<u4"),
    ("late_output", "<u4"),
    ("decode_head", "<u4"),
    ("decode_input", "<u4"),
    ("capture_generation", "<u4"),
]
"""Of the burst that a thread is in, in its state."""
PREFILL_UNTOLD = 2**32 - 1
"""`prefill_least` where only decode is told."""


@dataclass(frozen=True, slots=True)
class PhaseLimits:
    """Heads (256 for each doubling of grid blocks) and bytes of input of either phase, ends included."""

    decode_least: int
    decode_most: int
    decode_input: int
    prefill_least: int
    prompt_least: int
    prompt_most: int


class BurstMaps:
    """Rings are read by the kernel's count of what it wrote: what was overwritten meanwhile is gone."""

    def __init__(self, fds: Mapping[str, int]) -> None:
        self._rings, self._limits = fds["burst_rings"], fds["phase_limits"]
        self._told: dict[int, tuple[int, PhaseLimits]] = {}

    def since(self, pid: int, tid: int, written: int) -> tuple[NDArray[np.void], int]:
        """BURST_DTYPE (N,) that the thread has made since `written`, the oldest first, and the count to ask
        with next. The last one is left out: more may come back for it.
        """
        raw = bpf.lookup(self._rings, struct.pack("<I", tid), BURST_RING_DTYPE.itemsize)
        empty = np.zeros(0, BURST_DTYPE)
        if raw is None:
            return empty, 0
        ring = np.frombuffer(raw, BURST_RING_DTYPE)[0]
        if int(ring["tgid"]) != pid:
            return empty, 0
        ended = max(0, int(ring["written"]) - 1)
        if ended < written:  # another thread of the process has this id now
            written = 0
        first = max(written, ended - BURSTS + 1)
        bursts: NDArray[np.void] = ring["bursts"][np.arange(first, ended) % BURSTS]
        return bursts, ended

    def set_limits(self, pid: int, tid: int, limits: PhaseLimits | None) -> bool:
        """False where the map is full; None takes them away. Unchanged: free."""
        if limits is None:
            if self._told.pop(tid, None):
                bpf.delete(self._limits, struct.pack("<I", tid))
            return True
        if self._told.get(tid) == (pid, limits):
            return True
        try:
            bpf.update(self._limits, struct.pack("<I", tid), struct.pack("<7I", pid, *astuple(limits)))
        except OSError:
            return False
        self._told[tid] = pid, limits
        return True

    def forget(self, tids: Collection[int]) -> None:
        """Take out all that there is of threads that have ended."""
        for tid in tids:
            self._told.pop(tid, None)
            for fd in (self._rings, self._limits):
                bpf.delete(fd, struct.pack("<I", tid))
