# SPDX-License-Identifier: Apache-2.0
"""The last finished requests, for `/v1/requests` and `/v1/requests/{id}`. Bounded.

One writer, the tick; readers take a snapshot of the deque's blocks, which are never changed, and work out
what they are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hotstage.clock import Clock
from hotstage.stages.labels import OwnNames, no_names
from hotstage.stages.segment_parts import Uuids
from hotstage.stages.spans import OUTCOME_REFUSED, modality_of_masks
from hotstage.stages.stage import Modality, Stage
from hotstage.stages.timeline import Rows, stage_ids_of
from hotstage.stages.waterfall import request_rows, waterfall
from hotstage.stages.waterfall_types import Requests, Waterfall
from hotstage.text import clean_name

Order = Literal["ended", "newest", "slowest"]

_CHUNK = 512
_NO_UUIDS: Uuids = {}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which requests are asked for; None: all. `stage` is a name, the server's own ones included."""

    stage: str | None = None
    modality: str | None = None
    endpoint: str | None = None
    instance: str | None = None
    outcome: str | None = None
    order: Order = "ended"
    """`ended` and `newest`: by their end; `slowest`: by the time in `stage` where one is named, else by the
    whole duration."""


ALL = Filter()


class RequestLog:
    """Finished requests, numbered from 1; the oldest go when `capacity` is exceeded."""

    def __init__(
        self, clock: Clock, capacity: int = 4000, own_names: Callable[[], OwnNames] = no_names
    ) -> None:
        self._clock = clock
        self._capacity = capacity
        self._own_names = own_names
        self._lock = Lock()
        self._blocks: deque[tuple[int, Rows]] = deque()
        self._held = 0
        self._finished = 0
        self._refused = 0
        self._open = 0

    def add(self, finished: Rows, open_requests: int) -> None:
        """Rows of FINISHED_DTYPE that ended since the last call, and how many are in flight now."""
        with self._lock:
            self._open = open_requests
            if not len(finished):
                return
            self._blocks.append((self._finished + 1, finished.copy()))
            self._finished += len(finished)
            self._refused += int(np.count_nonzero(finished["outcome"] == OUTCOME_REFUSED))
            self._held += len(finished)
            while self._held - len(self._blocks[0][1]) >= self._capacity:
                self._held -= len(self._blocks.popleft()[1])

    def document(self, after: int, limit: int, wanted: Filter = ALL) -> Requests:
        """Up to `limit` requests with a number above `after`; `next` is where to go on.

        In the order of their ends; or of all that are kept the newest, or the slowest, first.
        """
        with self._lock:
            blocks, totals = tuple(self._blocks), self._totals()
        names, offset_ns = self._own_names(), self._clock.wall_ns_of(0)
        # Of thousands of names one is asked for, in thousands of blocks.
        own = {key: name for key, name in names.items() if name == wanted.stage}
        picks = _matching(blocks, after, wanted, own)
        if wanted.order == "slowest":
            picks.sort(key=lambda pick: -pick.seconds)
        elif wanted.order == "newest":
            picks.reverse()
        shown = picks[:limit]
        is_cut = len(shown) < len(picks) and wanted.order == "ended"
        last = shown[-1].seq if is_cut else max((first + len(rows) - 1 for first, rows in blocks), default=0)
        found = []
        for begin in range(0, len(shown), _CHUNK):
            chunk = shown[begin : begin + _CHUNK]
            rows = np.array([pick.row for pick in chunk], chunk[0].row.dtype)
            found += request_rows(rows, [pick.seq for pick in chunk], offset_ns, names)
        return Requests(found, max(after, last), totals)

    def waterfall(self, request_id: str, uuids: Uuids = _NO_UUIDS) -> Waterfall | None:
        """Of the newest request with this id, else of the one with this number; None: not kept.

        `uuids`: (pid, device ordinal) → `GPU-…`, as of now.
        """
        with self._lock:
            blocks = tuple(self._blocks)
        found = _with_id(blocks, request_id) or _with_number(blocks, request_id)
        if found is None:
            return None
        seq, row = found
        return waterfall(row, seq, self._clock.wall_ns_of(0), self._own_names(), uuids)

    def _totals(self) -> dict[str, int]:
        return {
            "started": self._finished + self._open,
            "finished": self._finished - self._refused,
            "open": self._open,
            "refused": self._refused,
        }


@dataclass(frozen=True, slots=True)
class _Pick:
    seq: int
    row: np.void
    seconds: float
    """What it is ordered by."""


def _matching(blocks: tuple[tuple[int, Rows], ...], after: int, wanted: Filter, own: OwnNames) -> list[_Pick]:
    picks = []
    for first, rows in blocks:
        start = max(0, after + 1 - first)
        if start >= len(rows):
            continue
        later = rows[start:]
        matches, seconds = _judged(later, wanted, own)
        picks += [
            _Pick(first + start + at, later[at], float(seconds[at]))
            for at in np.flatnonzero(matches).tolist()
        ]
    return picks


def _judged(rows: Rows, wanted: Filter, own: OwnNames) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """(which rows match, seconds to order them by)."""
    matches = np.ones(len(rows), np.bool_)
    seconds = rows["ended_ns"].astype(np.float64) - rows["started_ns"].astype(np.float64)
    for name in ("endpoint", "instance"):
        value = getattr(wanted, name)
        if value is not None:
            matches &= _named(rows[name], value)
    if wanted.modality is not None:
        code = Modality.__members__.get(wanted.modality, -1)
        matches &= modality_of_masks(rows["stage_mask"] | rows["open_mask"]) == code
    if wanted.outcome is not None:
        matches &= rows["outcome"] == _OUTCOME_CODES.get(wanted.outcome, -1)
    if wanted.stage is not None:
        is_its = _slots_named(rows, wanted.stage, own) & (rows["stages"]["count"] > 0)
        matches &= is_its.any(axis=1)
        seconds = (rows["stages"]["total_ns"] * is_its).sum(axis=1).astype(np.float64)
    return matches, seconds / 1e9


def _named(raw: NDArray[np.bytes_], text: str) -> NDArray[np.bool_]:
    """(R,): which of the names (R,) are shown as `text` is: cleaned, and only up to the first NUL."""
    distinct, places = np.unique(raw, return_inverse=True)
    wanted = clean_name(text.encode()[: raw.dtype.itemsize])
    fits = np.array([clean_name(each) == wanted for each in distinct.tolist()], np.bool_)
    return fits[places]


_OUTCOME_CODES = {"ok": 0, "error": 1, "cancelled": 2, "refused": 3}


def _slots_named(rows: Rows, stage: str, own: OwnNames) -> NDArray[np.bool_]:
    """(R, S): slots of the stage with this name; `own`: the processes' own ones of this name."""
    ids = stage_ids_of(rows)
    pinned = Stage.__members__.get(stage)
    if pinned is not None:
        found: NDArray[np.bool_] = ids == pinned
        return found
    found = np.zeros(ids.shape, np.bool_)
    for pid, stage_id in own:
        found |= (ids == stage_id) & (rows["tgid"] == pid)[:, None]
    return found


def _with_id(blocks: tuple[tuple[int, Rows], ...], request_id: str) -> tuple[int, np.void] | None:
    for first, rows in reversed(blocks):
        for at in range(len(rows) - 1, -1, -1):
            if clean_name(rows["id"][at]) == request_id:
                return first + at, rows[at]
    return None


def _with_number(blocks: tuple[tuple[int, Rows], ...], text: str) -> tuple[int, np.void] | None:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        return None
    for first, rows in blocks:
        if 0 <= int(text) - first < len(rows):
            return int(text), rows[int(text) - first]
    return None
