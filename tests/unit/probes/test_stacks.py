# SPDX-License-Identifier: Apache-2.0
"""The book of stacks: what is one row, what is kept; addresses as places of this very process."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np

from hotstage.probes.discovery.processes import ProcessTable
from hotstage.probes.maps.layout import EventKind
from hotstage.probes.maps.names import CALL_STACK_DTYPE
from hotstage.probes.stacks import StackBook, StackFrame, StackWatch, frames_of

EVENT_WAIT = 65


def named(pid: int, stage: int, modality: int) -> tuple[str | None, str]:
    return (f"stage {stage}" if stage else None), f"modality {modality}"


def rows(*frames: int, pid: int = 7, count: int = 1, kind: EventKind = EventKind.CALL_SLOW) -> np.ndarray:
    found = np.zeros(count, CALL_STACK_DTYPE)
    found["kind"], found["tgid"], found["call"], found["frame_count"] = kind, pid, EVENT_WAIT, len(frames)
    found["frames"][:, : len(frames)] = frames
    found["ended_ns"], found["duration_ns"] = np.arange(1, count + 1), 2_000_000_000
    return found


def test_calls_from_the_same_place_are_one_row() -> None:
    book = StackBook()
    first = rows(0x1000, 0x2000)
    assert len(book.unknown(first)) == 1
    frame = StackFrame(0x1000, "/lib/libengine.so", 0x400, "ab", "wait_for_step", 12)
    book.take(first, {0x1000: frame})
    assert len(book.unknown(rows(0x1000, 0x2000, count=3))) == 0
    (stack,) = book.all(named)
    assert (stack.call, stack.kind, stack.told, stack.last_ns) == ("cuEventSynchronize", "slow", 4, 3)
    assert stack.frames[0] == frame and stack.longest_seconds == 2.0
    assert (stack.frames[1].address, stack.frames[1].library) == (0x2000, None)


def test_a_row_is_of_one_stage_and_tells_who_called_last() -> None:
    book = StackBook()
    first, other = rows(0x1000), rows(0x1000, count=2)
    first["tid"], other["tid"], other["stage"], other["modality"] = 70, (71, 72), 3, 1
    other["duration_ns"] = 5_000_000_000, 1_000_000_000
    book.take(first, {})
    book.take(other, {})
    mine, bare = book.all(named)
    assert (bare.tid, bare.stage, bare.modality, bare.told) == (70, None, "modality 0", 1)
    assert (mine.tid, mine.stage, mine.modality, mine.told) == (72, "stage 3", "modality 1", 2)
    assert (mine.last_seconds, mine.longest_seconds) == (1.0, 5.0)


class Ring:
    def drain_stacks(self) -> np.ndarray:
        return np.concatenate([rows(0x1000, pid=os.getpid()), rows(0x2000, pid=2**22 - 1)])


class Asked:
    """Of look-ups: whose memory maps would be read."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def finished(self) -> list[object]:
        return []

    def submit(self, key: int, pid: int, work: object) -> None:
        self.pids.append(pid)


def test_calls_of_the_agent_itself_are_nobodys() -> None:
    watch, lookups = StackWatch(Path("/proc"), 1.0, lambda: 0), Asked()
    watch._maps = Ring()  # type: ignore[assignment]
    watch._round(lookups)  # type: ignore[arg-type]
    assert lookups.pids == [2**22 - 1] and watch.book.all(named) == []


def test_the_one_that_came_last_longest_ago_goes() -> None:
    book = StackBook(kept=2)
    book.take(rows(1), {})
    book.take(rows(2), {})
    book.unknown(rows(1))
    book.take(rows(3, kind=EventKind.CALL_ERROR), {})
    assert sorted(stack.frames[0].address for stack in book.all(named)) == [1, 3]


def test_an_address_of_this_process_has_a_file_and_a_function() -> None:
    address = ctypes.cast(ctypes.CDLL(None).qsort, ctypes.c_void_p).value
    assert address is not None
    found = frames_of(ProcessTable(Path("/proc")), os.getpid(), [address + 3, 5])
    frame = found[address + 3]
    assert set(found) == {address + 3} and frame.library is not None and frame.build_id
    assert (frame.symbol, frame.symbol_offset) == ("qsort", 3)


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    assert frames_of(ProcessTable(Path("/proc")), 2**22 - 1, [4096]) == {}
