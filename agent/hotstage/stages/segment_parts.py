# SPDX-License-Identifier: Apache-2.0
"""What the kernel knows of a stage of a request beside its times: its threads' waits, its contexts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotstage.probes.maps.layout import NO_DEVICE, UNKNOWN_US
from hotstage.stages.waterfall_types import Parts, SegmentContext

Uuids = Mapping[tuple[int, int], str]
"""(pid, device ordinal) → `GPU-…`."""

WAIT_FIELDS = ("run_queue_us", "sync_us", "copy_us", "alloc_us")


def parts_of(slot: Any) -> Parts | None:
    """A row of STAGE_SLOT_DTYPE → how its time was spent; None where none of the waits is known."""
    waits = [None if slot[name] == UNKNOWN_US else int(slot[name]) / 1e6 for name in WAIT_FIELDS]
    known = [wait for wait in waits if wait is not None]
    if not known:
        return None
    run_queue, sync, copy, alloc = waits
    host = max(0.0, int(slot["total_ns"]) / 1e9 - sum(known)) if len(known) == len(waits) else None
    return Parts(run_queue, sync, copy, alloc, host)


def waits_of(slot: Any) -> tuple[tuple[str, float], ...]:
    """The same as (`sync`, seconds), without what is unknown."""
    return tuple(
        (name.removesuffix("_us"), int(slot[name]) / 1e6) for name in WAIT_FIELDS if slot[name] != UNKNOWN_US
    )


def contexts_of(row: Any, stage_id: int, uuids: Uuids) -> list[SegmentContext] | None:
    """CUDA contexts that the stage with this id ran in; None where none is known."""
    pid = int(row["tgid"])
    found = []
    for each in row["contexts"]:
        if each["context"] and int(each["stage_mask"]) >> stage_id & 1:
            ordinal = None if each["device"] == NO_DEVICE else int(each["device"])
            uuid = None if ordinal is None else uuids.get((pid, ordinal))
            found.append(SegmentContext(int(each["context"]), ordinal, uuid))
    return found or None
