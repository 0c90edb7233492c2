# SPDX-License-Identifier: Apache-2.0
"""What `bench overhead` compares: twins and the programs on each; our own, empty and hand-written ones."""

from __future__ import annotations

from dataclasses import dataclass

from hotstage.probes.bpf import ATTACH_UPROBE_MULTI, ATTACH_UPROBE_SESSION
from hotstage.probes.loader.base import PointKind, Rung
from hotstage.probes.loader.programs import PROGRAMS, Side

LAUNCH_CALL = 1
"""cuLaunchKernel: its stream is on the stack."""
WAIT_CALL = 64
"""cuStreamSynchronize."""
COPY_CALL = 40
"""cuMemcpyHtoD_v2: with bytes."""
ALLOC_CALL, FREE_CALL = 16, 21
"""cuMemAlloc_v2 and cuMemFree_v2: into the memory ledger and out of it."""

HEAD_CALLS = 25
"""Fewer than the 32 launches after a wait whose grids are summed up."""

_EMPTY = (Side("empty"),)
_EMPTY_PAIR = (Side("empty", on_return=True), Side("empty"))
_REFERENCE_PAIR = (Side("reference_exit", on_return=True), Side("reference_enter"))


MEANINGS = {
    "untraced": "the function with no probe",
    "empty": "one probe with an empty program: what every ratio is of",
    "empty_again": "the same once more: how far two equal ones differ",
    "reference_count": "the shortest program that counts, written by hand",
    "launch": "hotstage on a launch of a thread with marks",
    "launch_unmarked": "hotstage on a launch of a thread that never has a mark",
    "launch_head": "the same, among the first launches after a wait, whose grids are summed up",
    "stub_empty": "an empty program at an entry like libcuda's own",
    "stub_launch": "hotstage on a launch at such an entry",
    "empty_pair": "empty programs at entry and return",
    "empty_session": "the same as one session probe",
    "reference_pair": "the shortest pair that takes time, written by hand",
    "timed": "hotstage on a call that it times",
    "timed_bytes": "hotstage on a copy: time and bytes",
    "alloc_and_free": "hotstage on an allocation and its free: time and ledger",
    "bpftrace_count": "bpftrace counting the calls",
    "bpftrace_pair": "bpftrace timing them",
    "funclatency": "funclatency of bcc timing them",
}
"""What each variant is, in a line."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One twin and what is attached to it; `same_shape` names the empty variant with as many traps."""

    name: str
    twin: str
    sides: tuple[Side, ...] = ()
    call_id: int = 0
    same_shape: str | None = None
    undo: tuple[str, int] | None = None
    """A second twin and its call, made after each call of the first; a call is one of both then."""
    is_marked: bool = True
    """False: launches of a thread that never has a mark, each with a grid."""
    wait: tuple[str, int] | None = None
    """A twin and its call, made between every HEAD_CALLS launches of an unmarked thread and not timed."""
    command: str | None = None
    """Another tool that attaches to the twin by itself: `bpftrace` or `funclatency`."""


def variants(rung: Rung) -> tuple[Variant, ...]:
    """The variants of a rung, in the order in which slices are taken."""
    launch, timed = PROGRAMS[rung][PointKind.LAUNCH], PROGRAMS[rung][PointKind.TIMED]
    is_session = rung is Rung.SESSION
    pair_like = "empty_session" if is_session else "empty_pair"
    session = (
        (Variant("empty_session", "twin_empty_session", (Side("empty_session", is_session=True),)),)
        if is_session
        else ()
    )
    return (
        Variant("untraced", "twin_untraced"),
        Variant("empty", "twin_empty", _EMPTY),
        Variant("empty_again", "twin_empty_again", _EMPTY, same_shape="empty"),
        Variant("reference_count", "twin_reference_count", (Side("reference_count"),), same_shape="empty"),
        Variant("launch", "twin_launch", launch, LAUNCH_CALL, same_shape="empty"),
        Variant("launch_unmarked", "twin_launch_unmarked", launch, LAUNCH_CALL, "empty", is_marked=False),
        Variant(
            "launch_head",
            "twin_launch_head",
            launch,
            LAUNCH_CALL,
            "empty",
            is_marked=False,
            wait=("twin_wait", WAIT_CALL),
        ),
        Variant("stub_empty", "twin_stub_empty", _EMPTY, same_shape="empty"),
        Variant("stub_launch", "twin_stub_launch", launch, LAUNCH_CALL, same_shape="stub_empty"),
        Variant("empty_pair", "twin_empty_pair", _EMPTY_PAIR),
        *session,
        Variant("reference_pair", "twin_reference_pair", _REFERENCE_PAIR, same_shape="empty_pair"),
        Variant("timed", "twin_timed", timed, WAIT_CALL, same_shape=pair_like),
        Variant("timed_bytes", "twin_timed_bytes", timed, COPY_CALL, same_shape=pair_like),
        Variant("alloc_and_free", "twin_alloc", timed, ALLOC_CALL, pair_like, undo=("twin_free", FREE_CALL)),
        Variant("bpftrace_count", "twin_bpftrace_count", command="bpftrace", same_shape="empty"),
        Variant("bpftrace_pair", "twin_bpftrace_pair", command="bpftrace", same_shape="empty_pair"),
        Variant("funclatency", "twin_funclatency", command="funclatency", same_shape="empty_pair"),
    )


def of_wait(rung: Rung) -> tuple[Side, ...]:
    """The programs on a variant's `wait`."""
    return PROGRAMS[rung][PointKind.TIMED]


def reference_types(rung: Rung) -> dict[str, int]:
    """Programs of bench.bpf.o and their attach types on a rung."""
    names = ("empty", "reference_count", "reference_enter", "reference_exit")
    types = dict.fromkeys(names, 0 if rung is Rung.PERF else ATTACH_UPROBE_MULTI)
    if rung is Rung.SESSION:
        types["empty_session"] = ATTACH_UPROBE_SESSION
    return types
