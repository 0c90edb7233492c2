# SPDX-License-Identifier: Apache-2.0
"""Samples of the kernel's call counters → cumulative counts by call, stage and modality.

Thousands of keys move every second, mostly the same ones in the same order: where each is added up is found
out once, then a second is a few array operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.catalogue.spec import Family
from hotstage.probes.samples import CallSample
from hotstage.sinks import metrics
from hotstage.sinks.tally import Labels, Slots, Tally
from hotstage.stages.labels import StageLabels
from hotstage.stages.stage import OWN_STAGES, modality_name

# Indexed by the one-byte ids in rows: a look-up in a tuple is what a row can afford.
MODALITIES = tuple(modality_name(modality) for modality in range(256))

WAIT_REASONS = {
    Family.SYNC: "sync",
    Family.EVENT_WAIT: "sync",
    Family.COPY: "memcpy",
    Family.MEMSET: "memcpy",
    Family.ALLOC: "alloc",
    Family.FREE: "alloc",
}
"""What a thread waits for in a call of this family; other families are not waits."""

_COUNT, _ERRORS, _TOTAL_NS = range(3)
_NEVER = (0, 0, 0)

Numbers = NDArray[np.int64]


class CallCounts:
    """Not thread-safe."""

    def __init__(self) -> None:
        self.calls = Tally(metrics.CALLS)
        self.errors = Tally(metrics.CALL_ERRORS)
        self.waits = Tally(metrics.STAGE_WAIT)
        self._known = {
            call_id: (call.name, WAIT_REASONS.get(call.family))
            for call_id, call in calls_by_id().items()
            if call.family is not Family.MARK
        }
        self._raw = b""
        self._own: list[int] = []  # labels of the stages that processes made up, in the order of their keys
        self._told: Numbers = np.zeros((3, 0), np.int64)
        self._slots: tuple[Slots, Slots, Slots] = (Slots([]), Slots([]), Slots([]))
        self._before: dict[bytes, tuple[int, int, int]] = {}
        """What was told of keys when others came or went: a read of the map may miss one for a moment."""

    def add(self, sample: CallSample, stages: StageLabels) -> None:
        """What moved since the sample before; a counter that fell is a new process's and starts anew."""
        keys, raw = sample.keys, sample.keys.tobytes()
        is_own = np.flatnonzero((keys["stage"] >= OWN_STAGES.start) & (keys["stage"] < OWN_STAGES.stop))
        columns = (keys[name][is_own].tolist() for name in ("tgid", "stage"))
        own = [stages.label_of(pid, stage) for pid, stage in zip(*columns, strict=True)]
        if raw != self._raw or own != self._own:
            self._arrange(keys, raw, stages)
            self._raw, self._own = raw, own
        now = np.array([sample.stats[name] for name in ("count", "errors", "total_ns")], np.int64)
        self._told[:, now[_COUNT] < self._told[_COUNT]] = 0
        grew, self._told = now - self._told, now
        calls, errors, waits = self._slots
        self.calls.add_at(calls, grew[_COUNT], is_moved=sample.moved | (grew[_COUNT] > 0))
        self.errors.add_at(errors, grew[_ERRORS], is_moved=grew[_ERRORS] > 0)
        self.waits.add_at(waits, grew[_TOTAL_NS] / 1e9, is_moved=grew[_TOTAL_NS] > 0)

    def _arrange(self, keys: NDArray[Any], raw: bytes, stages: StageLabels) -> None:
        """Where each key counts, and what was told of it."""
        size = keys.dtype.itemsize
        self._before.update(zip(_cut(self._raw, size), zip(*self._told.tolist(), strict=True), strict=True))
        names = _cut(raw, size)
        if len(self._before) > 2 * len(names) + 1024:
            alive = set(names)
            self._before = {key: told for key, told in self._before.items() if key in alive}
        told = [self._before.get(name, _NEVER) for name in names]
        self._told = np.array(told, np.int64).reshape(len(names), 3).T.copy()
        calls: list[Labels | None] = []
        waits: list[Labels | None] = []
        columns = (keys[name].tolist() for name in ("tgid", "call", "stage", "modality"))
        for pid, call, stage, modality in zip(*columns, strict=True):
            name, reason = self._known.get(call, (None, None))
            of = (stages[stages.label_of(pid, stage)], MODALITIES[modality])
            calls.append(None if name is None else (name, *of))
            waits.append(None if reason is None else (*of, reason))
        self._slots = Slots(calls), Slots(calls), Slots(waits)


def _cut(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]
