# SPDX-License-Identifier: Apache-2.0
"""Which finished requests were slow among their like, so that their spans are kept. Bounded; not thread-safe.

Slow is one that took longer than 95 of 100 of the last `RECENT` of its endpoint and modality, and at least
twice their median: among requests that are all alike nobody is slow. Below `SAMPLES_MIN` nobody knows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from hotstage.frame.rolling import nearest_ranks
from hotstage.stages.pulse import Rows
from hotstage.stages.spans import modality_of_masks

RECENT = 256
SAMPLES_MIN = 20
MEDIANS = 2.0
KINDS_MAX = 256
"""Endpoints × modalities; requests of others are told apart by modality alone."""

_LOOK_EVERY = 32


@dataclass(slots=True)
class _Kind:
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    since_look: int = _LOOK_EVERY
    limit_seconds: float | None = None


class Slowness:
    """`judge` every finished request, in the order of their ends."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[bytes, int], _Kind] = {}

    def judge(self, finished: Rows) -> list[bool]:
        """FINISHED_DTYPE (R,) → whether each was slow by those before it."""
        seconds = finished["ended_ns"].astype(np.float64) - finished["started_ns"].astype(np.float64)
        modalities = modality_of_masks(finished["stage_mask"] | finished["open_mask"])
        columns = (finished["endpoint"].tolist(), modalities.tolist(), (seconds / 1e9).tolist())
        return [self._is_slow(self._kind(*key), took) for *key, took in zip(*columns, strict=True)]

    def _kind(self, endpoint: bytes, modality: int) -> _Kind:
        key = (endpoint, modality)
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = (b"", modality)
        return self._kinds.setdefault(key, _Kind())

    def _is_slow(self, kind: _Kind, took_seconds: float) -> bool:
        is_slow = kind.limit_seconds is not None and took_seconds > kind.limit_seconds
        kind.recent.append(took_seconds)
        kind.since_look += 1
        if len(kind.recent) >= SAMPLES_MIN and kind.since_look >= _LOOK_EVERY:
            kind.limit_seconds, kind.since_look = _limit(kind.recent), 0
        return is_slow


def _limit(recent: deque[float]) -> float:
    values = np.array(recent)
    _, (p50, p95) = nearest_ranks(np.zeros(len(values), np.int64), values, (0.50, 0.95))[0]
    return max(float(p95), MEDIANS * float(p50))
