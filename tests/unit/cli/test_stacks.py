# SPDX-License-Identifier: Apache-2.0
"""`hotstage stacks`: who made a call, as far as it is known, and when."""

from __future__ import annotations

from click.testing import CliRunner
from support.answers import answering

from hotstage.cli.stacks import places, stacks

BARE = {"address": 0x7F00, "library": None, "offset": None, "build_id": None, "symbol": None}
NAMED = {
    "address": 0x10,
    "library": "/opt/libengine.so",
    "offset": 0x1C2D,
    "build_id": "ab",
    "symbol": "wait",
    "symbol_offset": 18,
}
WAIT = "libengine.so+0x1c2d (wait+0x12)"


def test_callers_in_no_file_are_one_question_mark() -> None:
    assert places([NAMED, BARE, BARE, NAMED, BARE]) == [WAIT, "?", WAIT, "?"]
    assert places([BARE, BARE]) == ["0x7f00", "?"], "the innermost one made the call, whatever it lies in"
    assert places([]) == []


def test_when_it_was_told_last_and_that_hanging_calls_are_elsewhere_is_said() -> None:
    stack = {
        "pid": 7,
        "tid": 8,
        "call": "cuStreamSynchronize",
        "stage": None,
        "modality": "unknown",
        "kind": "slow",
        "told": 3,
        "last_ns": 5_000_000_000,
        "longest_seconds": 2.0,
        "frames": [NAMED, BARE],
    }
    answers = {
        "/v1/stacks": {"is_taken": True, "stacks": [stack]},
        "/v1/coverage": {"wall_offset_ns": 10**9},
    }
    with answering(lambda path: answers[path]) as address:
        done = CliRunner().invoke(stacks, ["--agent", address])
    lines = done.output.splitlines()
    assert lines[0].endswith("in no stage was slow, told 3 times, longest 2 s, last at 1970-01-01 00:00:06Z")
    assert lines[1:3] == [f"    {WAIT}", "    ?"] and "only calls that have returned" in lines[3]
