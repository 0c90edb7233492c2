# SPDX-License-Identifier: Apache-2.0
"""Which CUDA contexts and devices belong to which process, and so to a request; values only.

The kernel notes the contexts that a request's stages ran in. Where it saw none, the device is found by the
threads that work for it, else by its stream, else by its process, if that has contexts on one device only.
What none of them tells is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.labels import own_stage_name
from hotstage.stages.snapshot_types import Context, Device, DeviceSource
from hotstage.stages.stage import OWN_STAGES, STAGE_IDS

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
    indices: Mapping[str, int] = field(default_factory=dict)
    """UUID → the GPU's index, as NVML counts."""
    stage_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(pid, stage id) → what the process calls a stage that it made up itself."""


class PlaceFinder:
    """Answers for the requests of one snapshot; equal answers are one object."""

    def __init__(self, places: Places, threads: NDArray[Any]) -> None:
        """`threads`: THREAD_DTYPE (T,)."""
        self._uuids = places.uuids
        self._indices = places.indices
        self._ordinals = places.contexts
        self._contexts: dict[int, list[Context]] = {}
        for (pid, context), ordinal in sorted(places.contexts.items()):
            self._contexts.setdefault(pid, []).append(Context(context, ordinal))
        self._streams = _streams(threads)
        self._known: dict[tuple[int, int, tuple[int, ...]], _Found] = {}
        self._bound: dict[tuple[int, tuple[Binding, ...]], _Found] = {}
        self._names: dict[tuple[int, int], list[str]] = {}
        self._own_names = places.stage_names

    def find(self, pid: int, stream: int, ordinals: Sequence[int]) -> _Found:
        """(devices, contexts on them) of a request of `pid` that its threads are on `ordinals` for."""
        key = pid, stream, tuple(sorted({each for each in ordinals if each != NO_DEVICE})) if ordinals else ()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._look(*key)
        return found

    def find_bound(self, pid: int, bindings: tuple[Binding, ...]) -> _Found:
        """The same of a request whose stages are known to have run in these contexts."""
        key = pid, bindings
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = self._of_bindings(pid, bindings)
        return found

    def stages_of(self, pid: int, mask: int) -> list[str]:
        """Names of the stages in a request's mask, in pipeline order, its process's own ones after them."""
        key = (pid if mask >> OWN_STAGES.start else 0), mask
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = [
                own_stage_name(self._own_names, pid, bit) for bit in range(STAGE_IDS) if mask >> bit & 1
            ]
        return found

    def name_of(self, pid: int, stage: int) -> str:
        """A stage's name in this process."""
        return own_stage_name(self._own_names, pid, stage)

    def _device(self, pid: int, ordinal: int, source: DeviceSource, stages: Sequence[str] = ()) -> Device:
        uuid = self._uuids.get((pid, ordinal))
        return Device(ordinal, uuid, source, list(stages), None if uuid is None else self._indices.get(uuid))

    def _of_bindings(self, pid: int, bindings: tuple[Binding, ...]) -> _Found:
        masks: dict[int, int] = {}
        by_context: dict[int, tuple[int, int]] = {}
        for context, mask, device in bindings:
            ordinal = device if device != NO_DEVICE else self._ordinals.get((pid, context), NO_DEVICE)
            before = by_context.get(context, (ordinal, 0))
            by_context[context] = before[0], before[1] | mask
            masks[ordinal] = masks.get(ordinal, 0) | mask
        contexts = [
            Context(context, None if ordinal == NO_DEVICE else ordinal, self.stages_of(pid, mask))
            for context, (ordinal, mask) in by_context.items()
        ]
        devices = [
            self._device(pid, ordinal, "context", self.stages_of(pid, mask))
            for ordinal, mask in sorted(masks.items())
            if ordinal != NO_DEVICE
        ]
        return devices or None, contexts

    def _look(self, pid: int, stream: int, by_thread: tuple[int, ...]) -> _Found:
        contexts = self._contexts.get(pid, [])
        source: DeviceSource = "thread"
        ordinals = by_thread
        if not ordinals and (by_stream := self._streams.get((pid, stream))) is not None:
            ordinals, source = (by_stream,), "stream"
        if not ordinals:
            source = "process"
            ordinals = tuple({context.ordinal for context in contexts if context.ordinal is not None})
            if len(ordinals) != 1:
                return None, None
        devices = [self._device(pid, ordinal, source) for ordinal in ordinals]
        return devices, [context for context in contexts if context.ordinal in ordinals] or None


Binding = tuple[int, int, int]
"""CUcontext, mask of the stages that ran in it, device ordinal."""

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
