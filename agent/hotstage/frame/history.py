# SPDX-License-Identifier: Apache-2.0
"""The last frames, bounded by time and size: what rules and `/v1/frames` look back on. Never judges, never
stores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hotstage.frame.columns import COLUMN_INDEX
from hotstage.frame.entity import Entity
from hotstage.frame.frame import Frame

Floats = NDArray[np.float64]

_FRAMES_MAX = 4096
ROWS_MAX = 310_000
"""Entities of all frames together, some 970 bytes each: 15 minutes of 340. Of more, the oldest frames go
earlier: any process can make entities up.
"""


class History:
    """Append frames in order of time. Not thread-safe."""

    def __init__(self, seconds: float) -> None:
        self._span_ns = round(seconds * 1e9)
        self._frames: deque[Frame] = deque()
        self._rows = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def latest(self) -> Frame | None:
        return self._frames[-1] if self._frames else None

    def frames(self) -> tuple[Frame, ...]:
        """All of them, oldest first; the tuple may be handed to other threads."""
        return tuple(self._frames)

    def append(self, frame: Frame) -> None:
        """Take a frame in and let the ones go that are too old."""
        self._frames.append(frame)
        self._rows += len(frame.entities)
        while len(self._frames) > 1 and self._is_too_much(frame.at_ns):
            self._rows -= len(self._frames.popleft().entities)

    def _is_too_much(self, now_ns: int) -> bool:
        is_old = now_ns - self._frames[0].at_ns > self._span_ns
        return is_old or self._rows > ROWS_MAX or len(self._frames) > _FRAMES_MAX

    def since(self, at_ns: int) -> Iterator[Frame]:
        """Frames later than `at_ns`, oldest first."""
        return (frame for frame in self._frames if frame.at_ns > at_ns)

    def series(self, entity: Entity, column: str, seconds: float) -> tuple[NDArray[np.int64], Floats]:
        """(times, values) of the last `seconds`, (T,) each; frames without the entity are left out.

        NaN stays NaN. KeyError for no such column.
        """
        index = COLUMN_INDEX[column]
        if not self._frames:
            return np.zeros(0, np.int64), np.zeros(0)
        oldest_ns = self._frames[-1].at_ns - round(seconds * 1e9)
        times, values = [], []
        for frame in reversed(self._frames):
            if frame.at_ns <= oldest_ns:
                break
            row = frame.row(entity)
            if row is not None:
                times.append(frame.at_ns)
                values.append(float(frame.values[row, index]))
        return np.array(times[::-1], np.int64), np.array(values[::-1], float)
