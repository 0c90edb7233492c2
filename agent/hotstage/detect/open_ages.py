# SPDX-License-Identifier: Apache-2.0
"""Which open spans may be older than their streams allow, told for all of them at once.

Hundreds stand open on a busy host and nearly all are as young as usual: what stands out is judged one by one,
the rest costs a few array operations. The bound errs on the side of looking, never on the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.detect.baseline import Usual
from hotstage.grouping import grouped
from hotstage.stages.pulse import Rows

FEW = 24
"""So many spans are judged one by one in the time that the arrays take."""

Code = tuple[int, int]
"""(label, modality) of a stream."""

Allowed = tuple[Usual | None, float]
"""What is usual for a stream, None where nobody knows, and the excess (log2) that it may have."""

_Limit = tuple[float, float, float, float, float]

_NO_LIMIT = (math.inf, 1.0, 1.0, math.inf, 0.0)
_SLACK = 1e-6
"""Logarithms of arrays and of plain numbers may differ in the last digits."""


class OpenAges:
    """Keeps what was worked out for each stream until its usual duration or its level moves."""

    def __init__(self) -> None:
        self._limits: dict[Code, tuple[Allowed, _Limit]] = {}

    def suspects(self, spans: Rows, now_ns: int, streams: Mapping[Code, Allowed]) -> Rows:
        """Open SPAN_DTYPE rows (N,) → those that may have more than they are allowed; none of other streams,
        and none where nobody knows what is usual. All of them where they are few.
        """
        if len(spans) <= FEW:
            return spans
        codes = spans["label"].astype(np.int64) << 8 | spans["modality"]
        known, place = grouped(codes)
        table = np.array([self._limit(streams, (code >> 8, code & 0xFF)) for code in known.tolist()])
        by_size, offset, largest, without, has_size = table[place].T
        tokens = np.maximum(spans["tokens"], 1).astype(np.float64)
        sized = by_size + np.log2(offset + tokens) + np.log2(np.maximum(tokens / largest, 1.0))
        least = np.where((has_size > 0) & (spans["tokens"] > 0), sized, without)
        return spans.take(np.flatnonzero(_log_ages(spans, now_ns) > least))

    def _limit(self, streams: Mapping[Code, Allowed], code: Code) -> _Limit:
        allowed = streams.get(code)
        if allowed is None:
            return _NO_LIMIT
        kept = self._limits.get(code)
        if kept is None or kept[0][0] is not allowed[0] or kept[0][1] != allowed[1]:
            kept = self._limits[code] = allowed, _limit_of(*allowed)
        return kept[1]


def _log_ages(spans: Rows, now_ns: int) -> NDArray[np.float64]:
    """log2 seconds (N,) since each began: the most that may count as its own time."""
    ages = np.maximum(np.int64(now_ns) - spans["began_ns"].astype(np.int64), 1)
    logs: NDArray[np.float64] = np.log2(ages / 1e9)
    return logs


def _limit_of(usual: Usual | None, level: float) -> _Limit:
    """log2 seconds by size, with its t0 and largest size; those without a size; whether size counts."""
    if usual is None:
        return _NO_LIMIT
    size = usual.size
    more = level + min((0.0, *usual.instance_offsets.values())) - _SLACK
    if math.isinf(size.offset):
        return math.inf, 1.0, 1.0, size.log_rate + more, 0.0
    return size.log_rate + more, size.offset, max(size.largest, 1.0), size.plain_high + more, 1.0
