# SPDX-License-Identifier: Apache-2.0
"""XID lines of NVIDIA's driver from the kernel log, as events: by bcc's tracepoint, or else by the raw
tracepoint.

It comes up beside the counters (bcc takes a third of a second) and the agent runs without it. It attaches
nothing else and judges nothing: what an XID means is decided elsewhere.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from pathlib import Path

import numpy as np

from hotstage.errors import HotstageError
from hotstage.probes import bpf
from hotstage.probes.coverage import Side
from hotstage.probes.loader.bcc_compiler import compile_with_bcc
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.loader.raw_tracepoint import load_raw_tracepoint
from hotstage.probes.loader.translate import translate
from hotstage.probes.maps.layout import KERNEL_LINE_DTYPE, EventKind
from hotstage.probes.maps.ring import RingReader
from hotstage.probes.samples import XidEvent
from hotstage.text import normal_bus_id

MAPS = ("urgent", "lost_lines")
SOURCE = "kernel_log"
TEXT_LIMIT = 240

_LINES: dict[int, np.dtype[np.void]] = {EventKind.KERNEL_LINE: KERNEL_LINE_DTYPE}
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{4,20})\): ?(\d{1,5})\b")

log = logging.getLogger(__name__)


class XidWatch:
    """`start` returns at once; `drain` on the fast tick. `side` says what it runs through, or why not."""

    def __init__(self, objects: Path = OBJECTS) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._ring: RingReader | None = None
        self._fds: list[int] = []
        self._lost_fd = -1
        self._ring_fd: int | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._open, name="hotstage-xid", daemon=True)
        self.side = Side("starting", None, None)
        self.unreadable = 0
        """Lines with the prefix that were no XID."""

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> Side:
        """The side once it is ready or has failed, at the latest after `seconds`."""
        self._thread.join(seconds)
        return self.side

    def urgent_fds(self) -> tuple[int, ...]:
        """The ring of the lines, to be polled; none before it is ready."""
        with self._lock:
            return () if self._ring_fd is None else (self._ring_fd,)

    def drain(self) -> tuple[XidEvent, ...]:
        """Events since the last call, oldest first."""
        with self._lock:
            if self._ring is None:
                return ()
            rows = self._ring.drain(_LINES)[EventKind.KERNEL_LINE]
        if not len(rows):
            return ()
        events: list[XidEvent] = []
        for row in rows:
            event = parse_xid(bytes(row["text"]), int(row["at_ns"]))
            if event is None:
                self.unreadable += 1
            else:
                events.append(event)
        return tuple(events)

    def lost(self) -> int:
        """Lines that found the ring full."""
        with self._lock:
            value = bpf.lookup(self._lost_fd, bytes(4), 8) if self._lost_fd >= 0 else None
        return int.from_bytes(value or b"", "little")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._ring is not None:
                self._ring.close()
            for fd in self._fds:
                os.close(fd)
            self._ring, self._ring_fd, self._fds, self._lost_fd = None, None, [], -1

    def _open(self) -> None:
        reasons: list[str] = []
        for through, opening in (("bcc", self._open_bcc), ("libbpf", self._open_raw)):
            try:
                fds, maps = opening()
            except (HotstageError, OSError) as error:
                reasons.append(f"{through}: {error}")
                log.info("no XID lines through %s", through, extra={"reason": str(error)})
                continue
            self._take(fds, maps)
            self.side = Side("watching", through, "; ".join(reasons) or None)
            return
        self.side = Side("off", None, "; ".join(reasons), "see `hotstage doctor`; NVML reports XIDs too")

    def _take(self, fds: list[int], maps: dict[str, int]) -> None:
        with self._lock:
            if self._is_closed:
                for fd in fds:
                    os.close(fd)
                return
            self._fds = fds
            self._ring_fd = maps["urgent"]
            self._ring = RingReader(self._ring_fd)
            self._lost_fd = maps["lost_lines"]

    def _open_bcc(self) -> tuple[list[int], dict[str, int]]:
        compiled = compile_with_bcc(translate(self._objects / "xid.bpf.c"), [], MAPS)
        fds = [*compiled.tracepoints.values(), *compiled.programs.values(), *compiled.maps.values()]
        return fds, dict(compiled.maps)

    def _open_raw(self) -> tuple[list[int], dict[str, int]]:
        return load_raw_tracepoint(self._objects / "xid.bpf.o", "console_line", "console", MAPS)


def parse_xid(text: bytes, at_ns: int) -> XidEvent | None:
    """One kernel line → an event; None when it is no XID. Control characters are replaced, 240 bytes are
    kept.
    """
    line = text[:TEXT_LIMIT].split(b"\0", 1)[0].decode("utf-8", "replace").strip()
    line = "".join(char if char.isprintable() else "?" for char in line)
    match = _XID.match(line)
    if match is None:
        return None
    return XidEvent(at_ns, normal_bus_id(match[1]), int(match[2]), line, SOURCE)
