# SPDX-License-Identifier: Apache-2.0
"""Which stacks are told with a window: of its process or stage, or of its candidates', meanwhile, and few."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.conftest import Factory, FakeClock

from hotstage.api.window_stacks import BEFORE_NS, FRAMES_MAX, STACKS_MAX, telling_stacks
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.probes.stacks import CallStack, StackFrame
from hotstage.windows.window import Candidate, Cause

OPENED = 900_000_000_000
PROCESS = Entity(EntityKind.process, pid=7)


def stack(pid: int = 7, at_ns: int = OPENED, **changed: object) -> CallStack:
    given = {
        "tid": 70, "call": "cuStreamSynchronize", "stage": "vision_encode", "modality": "image",
        "kind": "slow", "result": 0, "told": 1, "last_seconds": 2.0, "longest_seconds": 2.0,
        "frames": [StackFrame(at, None, None, None, None, None) for at in range(24)],
    }  # fmt: skip
    return CallStack(pid=pid, last_ns=at_ns, **{**given, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entity", "found"),
    [
        (Entity(EntityKind.stage, stage="vision_encode", modality="image"), True),
        (Entity(EntityKind.stage, stage="vision_encode"), True),
        (Entity(EntityKind.stage, stage="vision_encode", modality="video"), False),
        (Entity(EntityKind.stage, stage="llm_decode", modality="text"), False),
        (PROCESS, True),
        (Entity(EntityKind.process, pid=8), False),
        (HOST, False),
        (Entity(EntityKind.endpoint, endpoint="/v1/vision"), False),
    ],
)
def test_a_stack_is_told_with_what_it_is_of(
    make: Factory, clock: FakeClock, entity: Entity, found: bool
) -> None:
    bare = Cause("hang", "it stands", 0.9, ())
    window = make.window(entity=entity, opened_ns=OPENED, cause=bare)
    assert bool(telling_stacks(window, [stack()], clock)) is found
    suspect = Cause("hang", "it stands", 0.9, (Candidate("hang", 0.9, "why", PROCESS),))
    assert len(telling_stacks(replace(window, cause=suspect), [stack()], clock)) == 1


def test_only_what_came_meanwhile(make: Factory, clock: FakeClock) -> None:
    window = make.window(entity=PROCESS, opened_ns=OPENED, closed_ns=OPENED + 50)
    times = (OPENED - BEFORE_NS - 1, OPENED - BEFORE_NS, OPENED + 50, OPENED + 51)
    told = telling_stacks(window, [stack(at_ns=at) for at in times], clock)
    assert [each["last_at_ns"] for each in told] == [clock.wall_ns_of(at) for at in times[1:3]]


def test_failures_come_first_and_few_are_told(make: Factory, clock: FakeClock) -> None:
    window = make.window(entity=PROCESS, opened_ns=OPENED)
    failed = stack(kind="failed", result=2)
    told = telling_stacks(window, [*(stack(told=number) for number in range(9)), failed], clock)
    assert [(each["kind"], each["told"]) for each in told] == [
        ("failed", 1), ("slow", 8), ("slow", 7), ("slow", 6), ("slow", 5)
    ]  # fmt: skip
    assert len(told) == STACKS_MAX and len(told[0]["frames"]) == FRAMES_MAX
    assert (told[0]["tid"], told[0]["stage"], told[0]["modality"], told[0]["result"]) == (
        70, "vision_encode", "image", 2
    )  # fmt: skip
