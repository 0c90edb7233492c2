# SPDX-License-Identifier: Apache-2.0
"""The stacks that tell something of a window: of slow and failing calls of its process or stage, meanwhile.

Those of a host, GPU, endpoint or instance would be anybody's, so such a window has only its candidates'.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict

from hotstage.api.documents import moment
from hotstage.clock import Clock
from hotstage.frame.entity import Entity
from hotstage.probes.stacks import CallStack
from hotstage.windows.window import AnomalyWindow

Document = dict[str, Any]

STACKS_MAX = 5
FRAMES_MAX = 12
BEFORE_NS = 10_000_000_000
"""What a window opens for was going on before."""


def telling_stacks(found: AnomalyWindow, stacks: Iterable[CallStack], clock: Clock) -> list[Document]:
    """At most STACKS_MAX: failures first, then those that were told most often."""
    entities = [found.entity, *(candidate.entity for candidate in found.cause.candidates)]
    until_ns = found.closed_ns if found.closed_ns is not None else clock.monotonic_ns()
    telling = [
        stack
        for stack in stacks
        if found.opened_ns - BEFORE_NS <= stack.last_ns <= until_ns
        and any(_is_of(stack, entity) for entity in entities)
    ]
    telling.sort(key=lambda stack: (stack.kind != "failed", -stack.told, -stack.longest_seconds))
    return [_document(stack, clock) for stack in telling[:STACKS_MAX]]


def _is_of(stack: CallStack, entity: Entity) -> bool:
    if entity.pid is not None:
        return stack.pid == entity.pid
    if entity.stage is None:
        return False
    return stack.stage == entity.stage and entity.modality in (None, stack.modality)


def _document(stack: CallStack, clock: Clock) -> Document:
    told = asdict(stack)
    del told["last_ns"]
    frames = [asdict(frame) for frame in stack.frames[:FRAMES_MAX]]
    return {**told, **moment("last_at", stack.last_ns, clock), "frames": frames}
