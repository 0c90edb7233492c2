# SPDX-License-Identifier: Apache-2.0
"""Where slow and failing calls were made: user stacks from the kernel, named by the files that they lie in.

Files and memory maps of strangers are read by look-ups with a deadline, beside everybody; a thread of this
module's own waits for them. Frames follow frame pointers: the innermost one, who made the call, is always
right; what lies outside of code without frame pointers is missing. Frames of an interpreter are its own.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct, structs
from numpy.typing import NDArray

from hotstage.errors import HotstageError
from hotstage.grouping import distinct
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.discovery.elf import ElfError, read_layout
from hotstage.probes.discovery.elf_symbols import functions_at
from hotstage.probes.discovery.libraries import open_mapped
from hotstage.probes.discovery.lookups import Lookups
from hotstage.probes.discovery.processes import Mapping, ProcessTable
from hotstage.probes.kernel_names import short_name
from hotstage.probes.maps.layout import EventKind
from hotstage.probes.maps.names import NamesMaps
from hotstage.text import plain_line

KEPT = 256
"""Different stacks that are kept; beyond, the one that came last longest ago goes."""
LOOKED_AT = 64
"""Processes that are looked at in one round."""
PERIOD_SECONDS = 0.5
_PATH_LIMIT = 200
_COMPILER_SUFFIX = re.compile(r"(\.(isra|constprop|part|cold|lto_priv)(\.[0-9]+)?)+$")

log = logging.getLogger(__name__)


class StackFrame(Struct, frozen=True, gc=False):
    """One frame; all but `address` null where it lies in no file, or its process had gone."""

    address: Annotated[int, Meta(description="where the call returns to, in its process")]
    library: Annotated[str | None, Meta(description="the file's path as its process sees it")]
    offset: Annotated[int | None, Meta(description="in that file")]
    build_id: str | None
    symbol: Annotated[str | None, Meta(description="shortened; null where the file has no symbol for it")]
    symbol_offset: int | None


class CallStack(Struct, frozen=True, gc=False):
    """Calls of one process in one stage that were slow, or failed alike, from the same place."""

    pid: int
    tid: Annotated[int, Meta(description="the thread of the last one")]
    call: str
    stage: Annotated[str | None, Meta(description="null outside of any")]
    modality: str
    kind: Literal["slow", "failed"]
    result: Annotated[int, Meta(description="the call's own return code, of the last one")]
    told: Annotated[int, Meta(description="how many were told, not made: at most 100 a second by one thread")]
    last_ns: Annotated[int, Meta(description="when the last one returned, CLOCK_MONOTONIC")]
    last_seconds: Annotated[float, Meta(description="how long the last one took")]
    longest_seconds: float
    frames: Annotated[list[StackFrame], Meta(description="innermost first")]


class Stacks(Struct, frozen=True, gc=False):
    """Stacks of slow and failing calls, the newest first."""

    is_taken: Annotated[bool, Meta(description="false where `probes.stacks` is off")]
    stacks: list[CallStack]


def no_stacks() -> Stacks:
    """What an agent says that takes none."""
    return Stacks(False, [])


Frames = tuple[StackFrame, ...]
NameStage = Callable[[int, int, int], tuple[str | None, str]]
"""(pid, stage, modality), as the kernel has them → their names; no stage is None."""


class StackBook:
    """Stacks by process, call and place; bounded. Any thread may call."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._found: dict[tuple[int, int, int, int, int, bytes], CallStack] = {}
        self._names = {call_id: call.name for call_id, call in calls_by_id().items()}

    def unknown(self, rows: NDArray[np.void]) -> NDArray[np.void]:
        """Those of CALL_STACK_DTYPE (S,) whose stack is a new one; the others are counted at once."""
        with self._lock:
            return rows[[not self._add(row, None) for row in rows]]

    def take(self, rows: NDArray[np.void], frames: dict[int, StackFrame]) -> None:
        """New ones of CALL_STACK_DTYPE, with what is known of their addresses."""
        with self._lock:
            for row in rows:
                addresses = row["frames"][: int(row["frame_count"])].tolist()
                self._add(row, tuple(frames.get(each) or _bare(each) for each in addresses))

    def all(self, named: NameStage) -> list[CallStack]:
        """The newest first."""
        with self._lock:
            found = list(self._found.items())
        stacks = []
        for (pid, _, _, stage, modality, _), each in found:
            in_stage, of = named(pid, stage, modality)
            stacks.append(structs.replace(each, stage=in_stage, modality=of))
        return sorted(stacks, key=lambda each: -each.last_ns)

    def _add(self, row: np.void, frames: Frames | None) -> bool:
        """Whether it is in the book; a new one needs its frames."""
        addresses = row["frames"][: int(row["frame_count"])]
        named = (int(row[name]) for name in ("tgid", "call", "kind", "stage", "modality"))
        key = (*named, addresses.tobytes())
        known = self._found.pop(key, None)
        if known is None and frames is None:
            return False
        pid, call = key[:2]
        seconds = float(row["duration_ns"]) / 1e9
        self._found[key] = CallStack(
            pid=pid,
            tid=int(row["tid"]),
            call=self._names.get(call, f"call_{call}"),
            stage=None,
            modality="",
            kind="failed" if row["kind"] == EventKind.CALL_ERROR else "slow",
            result=int(row["result"]),
            told=1 + (known.told if known else 0),
            last_ns=int(row["ended_ns"]),
            last_seconds=seconds,
            longest_seconds=max(seconds, known.longest_seconds if known else 0.0),
            frames=known.frames if known else list(frames or ()),
        )
        if len(self._found) > self._kept:
            del self._found[next(iter(self._found))]
        return True


class StackWatch:
    """Drains, looks up, keeps; a thread of its own. `start` once the programs are loaded, `close` before
    their maps go.
    """

    def __init__(
        self,
        proc_root: Path,
        deadline_seconds: float,
        now_ns: Callable[[], int],
    ) -> None:
        self.book = StackBook()
        self._own_pid = os.getpid()
        self._processes = ProcessTable(proc_root)
        self._deadline_seconds = deadline_seconds
        self._now_ns = now_ns
        self._maps: NamesMaps | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiting: dict[int, NDArray[np.void]] = {}

    def start(self, maps: NamesMaps) -> None:
        self._maps = maps
        self._thread = threading.Thread(target=self._run, name="stacks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Safe to call twice, or without `start`."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        lookups = Lookups(self._deadline_seconds, self._now_ns)
        try:
            while not self._stop.wait(PERIOD_SECONDS):
                self._round(lookups)
        except OSError as error:  # the rest of the agent goes on without stacks
            log.warning("no more stacks of slow and failing calls", extra={"reason": str(error)})
        finally:
            lookups.close()

    def _round(self, lookups: Lookups) -> None:
        for outcome in lookups.finished():
            rows = self._waiting.pop(outcome.key)  # type: ignore[call-overload]
            self.book.take(rows, outcome.result if outcome.error is None else {})
        assert self._maps is not None
        rows = self._maps.drain_stacks()
        # This process is nobody's server: it calls what measures the probes' cost, and NVML
        rows = self.book.unknown(rows[rows["tgid"] != self._own_pid])
        for pid in distinct(rows["tgid"]).tolist():
            mine = rows[rows["tgid"] == pid]
            if pid in self._waiting or len(self._waiting) >= LOOKED_AT:
                self.book.take(mine, {})
                continue
            self._waiting[pid] = mine
            lookups.submit(pid, pid, self._look_up(pid, mine))

    def _look_up(self, pid: int, rows: NDArray[np.void]) -> Callable[[], dict[int, StackFrame]]:
        addresses = sorted({address for row in rows for address in row["frames"].tolist() if address})
        return lambda: frames_of(self._processes, pid, addresses)


def frames_of(processes: ProcessTable, pid: int, addresses: Sequence[int]) -> dict[int, StackFrame]:
    """Address in the process → what it is, as of now; those outside of mapped files are left out."""
    view = processes.look(pid, lambda path: True)
    if view is None:
        return {}
    found: dict[int, StackFrame] = {}
    for mapping in view.mappings:
        inside = [address for address in addresses if mapping.start < address <= mapping.end]
        if inside:
            found |= _frames_in(processes.root / str(pid), mapping, inside)
    return found


@dataclass(frozen=True, slots=True)
class _Named:
    build_id: str | None
    symbols: dict[int, tuple[str, int]]


def _frames_in(process: Path, mapping: Mapping, addresses: Sequence[int]) -> dict[int, StackFrame]:
    shown = plain_line(mapping.path, _PATH_LIMIT)
    offsets = {address: address - mapping.start + mapping.file_offset for address in addresses}
    named = _named(process, mapping, shown, list(offsets.values()))
    found = {}
    for address, offset in offsets.items():
        symbol, distance = named.symbols.get(offset, (None, None))
        found[address] = StackFrame(address, shown, offset, named.build_id, symbol, distance)
    return found


def _named(process: Path, mapping: Mapping, shown: str, offsets: Sequence[int]) -> _Named:
    """Of return addresses: the call is in front of them, maybe the last instruction of its function."""
    try:
        fd = open_mapped(process, mapping, shown)
    except (HotstageError, OSError):
        return _Named(None, {})
    try:
        elf = read_layout(fd)
        places = functions_at(fd, elf, [offset - 1 for offset in offsets])
    except (ElfError, OSError, ValueError):
        return _Named(None, {})
    finally:
        os.close(fd)
    symbols = {
        at + 1: (_COMPILER_SUFFIX.sub("", short_name(place.name)), place.offset + 1)
        for at, place in places.items()
    }
    return _Named(elf.build_id or None, symbols)


def _bare(address: int) -> StackFrame:
    return StackFrame(address, None, None, None, None, None)
