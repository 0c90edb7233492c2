# SPDX-License-Identifier: Apache-2.0
"""The last minute of ended things, as a ring of rows: bounded, and grouped without a loop over rows."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import begins, grouped

Rows = NDArray[Any]
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


_DISORDER_NS = 1_000_000_000
"""Rows that come after others may be so much older: what ends at one time is told one by one."""


class Rolling:
    """Rows of `dtype` (which has `at_ns`, uint64), appended nearly in order of time. Not thread-safe."""

    def __init__(self, dtype: np.dtype[Any], capacity: int) -> None:
        self._rows = np.zeros(capacity, dtype)
        self._times = self._rows["at_ns"]
        self._raw = self._rows.view(np.dtype((np.void, dtype.itemsize)))  # fields are dear to move
        self._next = 0
        self._filled = 0

    def append(self, rows: Rows) -> None:
        """Take rows in; beyond the capacity the oldest go, and the look-back shrinks."""
        rows = rows[-len(self._rows) :]
        until_end = min(len(rows), len(self._rows) - self._next)
        self._rows[self._next : self._next + until_end] = rows[:until_end]
        self._rows[: len(rows) - until_end] = rows[until_end:]
        self._next = (self._next + len(rows)) % len(self._rows)
        self._filled = min(self._filled + len(rows), len(self._rows))

    def since(self, at_ns: int) -> Rows:
        """A copy of the rows later than `at_ns`. What is older is not looked at, however much there is."""
        least, runs = max(at_ns - _DISORDER_NS, 0), [(0, self._next)]
        if self._filled == len(self._rows):
            runs.insert(0, (self._next, self._filled))
        begins = [bisect_right(self._times, least, *run) for run in runs]
        parts = [self._raw[begin:end] for begin, (_, end) in zip(begins, runs, strict=True)]
        rows = np.concatenate(parts).view(self._rows.dtype)
        is_late = rows["at_ns"] > max(at_ns, 0)
        return rows if is_late.all() else chosen(rows, is_late)


def chosen(rows: Rows, is_chosen: NDArray[np.bool_]) -> Rows:
    """`rows[is_chosen]`, a copy, for a tenth of its price."""
    kept: Rows = rows.view(np.dtype((np.void, rows.itemsize))).take(np.flatnonzero(is_chosen))
    return kept.view(rows.dtype)


def nearest_ranks(codes: Codes, values: Floats, shares: tuple[float, ...]) -> dict[int, tuple[int, Floats]]:
    """Nearest-rank quantiles of (N,) values per code → code: (n, one value a share).

    The nearest rank of share q among n is the ⌈q·n⌉-th smallest: always a value that occurred.
    """
    if len(codes) == 0:
        return {}
    order = np.lexsort((values, codes))
    codes, values = codes[order], values[order]
    first = begins(codes)
    counts = np.diff(first, append=len(codes))
    ranks = np.ceil(counts[:, None] * np.array(shares) - 1e-9).astype(np.int64) - 1  # (groups, shares)
    picked = values[first[:, None] + np.maximum(ranks, 0)]
    return {
        code: (count, row)
        for code, count, row in zip(codes[first].tolist(), counts.tolist(), picked, strict=True)
    }


def sums(codes: Codes, weights: Floats | None = None) -> dict[int, float]:
    """Count, or sum of weights, per code."""
    if len(codes) == 0:
        return {}
    known, group = grouped(codes)
    totals = np.bincount(group, weights=weights, minlength=len(known))
    return dict(zip(known.tolist(), totals.tolist(), strict=True))
