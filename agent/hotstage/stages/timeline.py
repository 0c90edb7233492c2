# SPDX-License-Identifier: Apache-2.0
"""Kernel rows of finished requests → where each stage stands on the request's own clock. Pure, numpy only.

Of a stage the kernel keeps the last begin from closed, the sum of its runs and how often it ended. A stage
that ended once is an interval. Of one that ended several times only the sum is known: it is *unplaced*, and
no interval is made up. A stage that was open at the end lasts from its last begin to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.stage import STAGE_SLOTS, Stage

Rows = NDArray[Any]
Ns = NDArray[np.int64]
Flags = NDArray[np.bool_]

PINNED = len(Stage)
NO_ID = 255
"""Stage id of a slot that no stage has claimed."""

NOT_KNOWN = np.int64(-1)
_TIME_MASK = np.uint64(0xFFFFFFFFFFFF)
_GIVES_WAY = frozenset({Stage.gateway, Stage.queue, Stage.other})


@dataclass(frozen=True, slots=True)
class Timeline:
    """R requests × S slots; ns since the request began, within its duration. Read where the flags say so."""

    duration_ns: Ns  # (R,)
    began_ns: Ns  # (R, S): of placed ones the begin, of unplaced ones the last begin
    ended_ns: Ns  # (R, S): of placed ones
    first_ns: Ns  # (R, S): of unplaced ones the first begin, to 256 ns; -1 = unknown
    total_ns: Ns  # (R, S): all runs
    is_placed: Flags  # (R, S)
    is_unplaced: Flags  # (R, S)
    is_open: Flags  # (R, S): at the request's end
    gives_way: Flags  # (R, S): gateway, queue, `other` and the server's own, which often enclose others
    stage_ids: NDArray[np.uint8]  # (R, S); NO_ID where the slot is nobody's


def timeline_of(rows: Rows) -> Timeline:
    """(R,) rows of FINISHED_DTYPE → their timeline."""
    started = rows["started_ns"]
    duration = since(rows["ended_ns"], started, np.iinfo(np.int64).max)
    slots, limit = rows["stages"], duration[:, None]
    count, is_open = slots["count"] > 0, slots["open"] > 0
    total = np.minimum(slots["total_ns"], limit.astype(np.uint64)).astype(np.int64)
    began = since(slots["began_ns"], started[:, None], limit)
    is_unplaced = (slots["count"] > 1) & ~is_open
    is_placed = (count | is_open) & ~is_unplaced
    ended = np.where(is_open, limit, began + np.minimum(total, limit - began))
    ids = stage_ids_of(rows)
    return Timeline(
        duration_ns=duration,
        began_ns=began,
        ended_ns=ended,
        first_ns=_first_begins(rows, ids, started, duration),
        total_ns=total,
        is_placed=is_placed,
        is_unplaced=is_unplaced,
        is_open=is_open,
        gives_way=_GIVES_WAY_TABLE[ids],
        stage_ids=ids,
    )


def since(at_ns: Rows, started_ns: Rows, limit_ns: Ns | int) -> Ns:
    """ns from `started_ns` to `at_ns` (both uint64), from 0 up to the limit, however wrong the clocks are."""
    apart = np.where(at_ns > started_ns, at_ns - started_ns, np.uint64(0))
    found: Ns = np.minimum(apart, np.asarray(limit_ns).astype(np.uint64)).astype(np.int64)
    return found


def stage_ids_of(rows: Rows) -> NDArray[np.uint8]:
    """(R, S) stage id of each slot: pinned ones in the first slots, the server's own where one is claimed."""
    ids = np.full((len(rows), STAGE_SLOTS), NO_ID, np.uint8)
    ids[:, :PINNED] = np.arange(PINNED, dtype=np.uint8)
    shifts = np.arange(STAGE_SLOTS - PINNED, dtype=np.uint64) * np.uint64(8)
    told = (rows["own_stages"][:, None] >> shifts & np.uint64(0xFF)).astype(np.uint8)
    ids[:, PINNED:] = np.where(told == 0, NO_ID, told)
    return ids


def _first_begins(rows: Rows, ids: NDArray[np.uint8], started: Rows, duration: Ns) -> Ns:
    """(R, S): begin of the stage that a modality was first seen in; -1 where no modality began with it."""
    found = np.full(ids.shape, NOT_KNOWN)
    words = rows["modality_first_words"]
    for modality in range(words.shape[1]):
        word = words[:, modality]
        at = since((word & _TIME_MASK) << np.uint64(8), started, duration)
        is_its = (ids == (word >> np.uint64(56)).astype(np.uint8)[:, None]) & (word != 0)[:, None]
        is_its &= (found < 0) | (found > at[:, None])
        np.copyto(found, np.broadcast_to(at[:, None], found.shape), where=is_its)
    return found


_GIVES_WAY_TABLE = np.array(
    [stage >= PINNED or stage in _GIVES_WAY for stage in range(256)],
    np.bool_,
)
