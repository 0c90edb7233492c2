# SPDX-License-Identifier: Apache-2.0
"""The programs of bpf/driver.bpf.c in the kernel: all in one compile, or, where that is refused, each
question in one of its own, so that one bad program never stops the rest. Reads their maps, judges nothing.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotstage.errors import HotstageError, LoadError, PreflightError, PrivilegeError
from hotstage.probes import bpf
from hotstage.probes.driver.counting import attach_counters, countable
from hotstage.probes.driver.layouts import counting_programs, macros
from hotstage.probes.driver.table import Choice, Event, Use, index_of
from hotstage.probes.loader.bcc_compiler import (
    ORDINARY_LIMITS,
    Compiled,
    CompileLimits,
    compile_with_bcc,
)
from hotstage.probes.loader.translate import translate
from hotstage.probes.maps import driver as layout
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.maps.ring import RingReader

SOURCE = "driver.bpf.c"
COMMON_MAPS = ("event_counts", "driver_losses", "driver_events", "ring_submits")
MAPS_OF: Mapping[str, tuple[str, ...]] = {
    "fences": ("open_fences", "timelines"),
    "fence waits": ("fence_waits_open", "fence_waits"),
    "gpu memory": ("gpu_memory",),
    "gpu ioctls": ("driver_settings", "gpu_files", "open_ioctls", "ioctl_stats"),
}
"""Logical event → the maps that its programs bring."""
DTYPES: Mapping[str, tuple[np.dtype[np.void], np.dtype[np.void]]] = {
    "ring_submits": (layout.RING_DTYPE, layout.COUNT_DTYPE),
    "open_fences": (layout.FENCE_KEY_DTYPE, layout.OPEN_FENCE_DTYPE),
    "timelines": (layout.TIMELINE_KEY_DTYPE, layout.TIMELINE_STAT_DTYPE),
    "fence_waits": (layout.TGID_DTYPE, layout.WAIT_STAT_DTYPE),
    "gpu_memory": (layout.GPU_MEMORY_KEY_DTYPE, layout.GPU_MEMORY_DTYPE),
    "gpu_files": (layout.GPU_FILE_KEY_DTYPE, layout.DEVICE_DTYPE),
    "ioctl_stats": (layout.IOCTL_KEY_DTYPE, layout.IOCTL_STAT_DTYPE),
}

log = logging.getLogger(__name__)

Layouts = Mapping[str, Mapping[str, bool]]
Rows = tuple[NDArray[np.void], NDArray[np.void]]


@dataclass(frozen=True, slots=True)
class Attached:
    """What came of a choice: pieces that are in the kernel, and why the other events are not. `lack`: what
    bcc lacks here, so that events are counted and nothing of what they say is known.
    """

    pieces: tuple[Piece, ...]
    reasons: Mapping[str, str]
    lack: HotstageError | None = None


class Piece:
    """One compile: its events are attached as long as it is open. Not for two threads at once."""

    def __init__(self, events: Sequence[Event], compiled: Compiled) -> None:
        self.events = tuple(events)
        self._compiled = compiled
        self._ring = RingReader(compiled.maps["driver_events"])
        self._counts = HashReader(
            compiled.maps["event_counts"], layout.EVENT_INDEX_DTYPE, layout.EVENT_COUNT_DTYPE
        )
        self._readers = {
            name: HashReader(fd, *DTYPES[name]) for name, fd in compiled.maps.items() if name in DTYPES
        }

    def drain(self) -> dict[int, NDArray[np.void]]:
        """Records since the last call, by kind; dtypes: `maps.driver.RECORDS`."""
        return self._ring.drain(layout.RECORDS)

    def hits(self) -> dict[str, tuple[int, int]]:
        """Its events → (how often each fired, when last as CLOCK_MONOTONIC ns, 0: never)."""
        keys, counts = self._counts.read()
        columns = (keys["index"].tolist(), counts["hits"].tolist(), counts["last_ns"].tolist())
        found = {index: (hits, last_ns) for index, hits, last_ns in zip(*columns, strict=True)}
        return {event.event: found.get(index_of(event), (0, 0)) for event in self.events}

    def lost(self) -> int:
        """What found its map or the ring full."""
        return int.from_bytes(bpf.lookup(self._fd("driver_losses"), bytes(4), 8) or b"", "little")

    def read(self, name: str) -> Rows | None:
        """Keys and values of a map, copies; None where this piece has no such map."""
        reader = self._readers.get(name)
        if reader is None:
            return None
        keys, values = reader.read()
        return keys.copy(), values.copy()

    def delete(self, name: str, keys: NDArray[np.void]) -> None:
        self._readers[name].delete(keys)

    def set_slow_ioctl(self, slow_ns: int) -> None:
        """From when on an ioctl is told as slow."""
        if "driver_settings" in self._compiled.maps:
            bpf.update(self._fd("driver_settings"), bytes(4), struct.pack("<Q", slow_ns))

    def set_gpu_file(self, pid: int, fd: int, device: int) -> None:
        """That descriptor of that process is of a GPU device from now on. Raises OSError: the map is full."""
        bpf.update(self._fd("gpu_files"), struct.pack("<II", pid, fd), struct.pack("<I", device))

    def close(self) -> None:
        self._ring.close()
        self._compiled.close()

    def _fd(self, name: str) -> int:
        return self._compiled.maps[name]


def attach(
    choice: Choice, layouts: Layouts, objects: Path, limits: CompileLimits = ORDINARY_LIMITS
) -> Attached:
    """Everything chosen, in one compile where that is taken. What compiler, verifier or kernel refuse is in
    `reasons` (a verifier's refusal and a missing privilege look alike). Where bcc compiles nothing at all,
    the events are counted alone; raises PreflightError or LoadError where that cannot be either.
    """
    if not choice.chosen:
        return Attached((), choice.reasons)
    try:
        return Attached((_compile(choice.chosen, layouts, objects, limits),), choice.reasons)
    except (LoadError, PrivilegeError) as error:
        log.info("the driver's programs were refused together, so each is tried alone: %s", error)
    except PreflightError as lack:
        return _count_alone(choice, objects, lack)
    pieces: list[Piece] = []
    reasons = dict(choice.reasons)
    refused: HotstageError | None = None
    for events in _questions(choice.chosen):
        try:
            pieces.append(_compile(events, layouts, objects, limits))
        except (LoadError, PrivilegeError) as error:
            refused = error
            reasons |= {event.event: str(error) for event in events}
    if not pieces and refused is not None:
        return _count_alone(choice, objects, refused)
    return Attached(tuple(pieces), reasons)


def _count_alone(choice: Choice, objects: Path, lack: HotstageError) -> Attached:
    compiled, refused = attach_counters(countable(choice.chosen), objects)
    events = [event for event in choice.chosen if event.event in compiled.tracepoints]
    left = {event.event: lack.message for event in choice.chosen if event not in events}
    return Attached((Piece(events, compiled),), {**choice.reasons, **left, **refused}, lack)


def _questions(events: Sequence[Event]) -> list[list[Event]]:
    """Events whose programs belong together; each counted one stands alone."""
    ordered = sorted(events, key=_question)
    return [list(group) for _, group in groupby(ordered, key=_question)]


def _question(event: Event) -> str:
    return event.event if event.use is Use.COUNTED else event.logical


def _compile(events: Sequence[Event], layouts: Layouts, objects: Path, limits: CompileLimits) -> Piece:
    source = objects / SOURCE
    if not source.exists():
        raise LoadError(f"{source} is missing", remedy="run `make bpf` in the source checkout")
    text = translate(source) + counting_programs(events, layouts)
    maps = [
        *COMMON_MAPS,
        *(name for kind in {event.logical for event in events} for name in MAPS_OF.get(kind, ())),
    ]
    return Piece(events, compile_with_bcc(text, [], maps, defines=macros(events, layouts), limits=limits))
