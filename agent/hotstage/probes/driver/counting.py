# SPDX-License-Identifier: Apache-2.0
"""The driver's tracepoints counted without bcc: how often each fires, and nothing of what it says.

Raw tracepoints need neither tracefs nor headers. All system calls share two, so ioctls are left to bcc.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from hotstage.errors import LoadError
from hotstage.probes import bpf
from hotstage.probes.driver.table import Event, Use, index_of
from hotstage.probes.loader.bcc_compiler import Compiled
from hotstage.probes.loader.libbpf_object import Libbpf, LibbpfError

OBJECT = "driver_counts.bpf.o"
_MAPS = ("event_counts", "driver_losses", "driver_events")
_RAW_TRACEPOINT_OPEN = 17


def countable(events: Iterable[Event]) -> tuple[Event, ...]:
    """Those whose count alone says something, one by one."""
    return tuple(event for event in events if event.use in (Use.COUNTED, Use.PROGRAM))


def attach_counters(events: Iterable[Event], objects: Path) -> tuple[Compiled, dict[str, str]]:
    """→ descriptors, attached while they are open; of refused events `group:name` → why.

    Raises PreflightError where libbpf or the object is missing, LoadError where the kernel takes none.
    """
    programs = {f"count_{index_of(event)}": event for event in events}
    try:
        loaded = Libbpf().load(objects / OBJECT, dict.fromkeys(programs, 0))
    except LibbpfError as error:
        raise LoadError(f"the kernel refuses {OBJECT}: {error.strerror}\n{error.log}".strip()) from error
    links: dict[str, int] = {}
    reasons: dict[str, str] = {}
    with contextlib.closing(loaded):
        for name, event in programs.items():
            try:
                links[event.event] = _open(event.bare_name, loaded.program_fd(name))
            except OSError as error:
                reasons[event.event] = f"the kernel refuses its raw tracepoint: {error.strerror}"
        if not links:
            raise LoadError(f"no raw tracepoint of {len(programs)} is taken: {'; '.join(reasons.values())}")
        maps = {name: os.dup(loaded.map_fd(name)) for name in _MAPS}
    return Compiled({}, maps, links, 0.0), reasons


def _open(tracepoint: str, program: int) -> int:
    name = ctypes.create_string_buffer(tracepoint.encode())
    return bpf.bpf(_RAW_TRACEPOINT_OPEN, struct.pack("<QI", ctypes.addressof(name), program))
