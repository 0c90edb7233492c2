# SPDX-License-Identifier: Apache-2.0
"""Which CUDA contexts and devices belong to which process, and so to a request; values only.

A request has no device of its own in the kernel: it is found by the threads that work for it, else by its
stream, else by its process, if that has contexts on one device only. What none of them tells is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.snapshot_types import Context, Device, DeviceSource

NO_DEVICE = 255
"""The kernel's word for a thread whose device it has not seen."""

_SPECIAL_STREAMS = 2
"""CU_STREAM_LEGACY and CU_STREAM_PER_THREAD: the same handle on every device."""


@dataclass(frozen=True, slots=True)
class Places:
    """As of the last slow tick. Handles are those of the process itself."""

    contexts: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """(pid, CUcontext) → device ordinal."""
    uuids: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(pid, device ordinal) → `GPU-…`; as the process itself counts."""


class PlaceFinder:
    """Answers for the requests of one snapshot; equal answers are one object."""

    def __init__(self, places: Places, threads: NDArray[Any]) -> None:
        """`threads`: THREAD_DTYPE (T,)."""
        self._uuids = places.uuids
        self._contexts: dict[int, list[Context]] = {}
        for (pid, context), ordinal in sorted(places.contexts.items()):
            self._contexts.setdefault(pid, []).append(Context(context, ordinal))
        self._streams = _streams(threads)
        self._known: dict[tuple[int, int, tuple[int, ...]], _Found] = {}

    def find(self, pid: int, stream: int, ordinals: Sequence[int]) -> _Found:
        """(devices, contexts on them) of a request of `pid` that its threads are on `ordinals` for."""
        key = pid, stream, tuple(sorted({each for each in ordinals if each != NO_DEVICE})) if ordinals else ()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._look(*key)
        return found

    def _look(self, pid: int, stream: int, by_thread: tuple[int, ...]) -> _Found:
        contexts = self._contexts.get(pid, [])
        source: DeviceSource = "thread"
        ordinals = by_thread
        if not ordinals and (by_stream := self._streams.get((pid, stream))) is not None:
            ordinals, source = (by_stream,), "stream"
        if not ordinals:
            source = "process"
            ordinals = tuple({context.ordinal for context in contexts})
            if len(ordinals) != 1:
                return None, None
        devices = [Device(ordinal, self._uuids.get((pid, ordinal)), source) for ordinal in ordinals]
        return devices, [context for context in contexts if context.ordinal in ordinals] or None


_Found = tuple[list[Device] | None, list[Context] | None]


def _streams(threads: NDArray[Any]) -> dict[tuple[int, int], int]:
    """(pid, stream) → device of the threads that used it last; a handle on two devices tells nothing."""
    telling = (threads["stream"] > _SPECIAL_STREAMS) & (threads["device"] != NO_DEVICE)
    if not telling.any():
        return {}
    rows = np.flatnonzero(telling)
    found: dict[tuple[int, int], int] = {}
    two = set()
    columns = (threads[name][rows].tolist() for name in ("tgid", "stream", "device"))
    for pid, stream, ordinal in zip(*columns, strict=True):
        if found.setdefault((pid, stream), ordinal) != ordinal:
            two.add((pid, stream))
    return {key: ordinal for key, ordinal in found.items() if key not in two}
