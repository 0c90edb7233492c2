# SPDX-License-Identifier: Apache-2.0
"""What a thread sits in is readable while it sits there; no way of leaving a call spoils it or the counts."""

from __future__ import annotations

import time

from tests.bpf.conftest import DEADLINE_SECONDS, Probes, Workload

from hotstage.probes.loader.base import Rung

LAUNCH, WAIT, EVENT, CONTEXT = 1, 64, 65, 66
BLOCK, NEST, ESCAPE, NEST_AND_ESCAPE, CATCH = 0xB10C, 0x7E57, 0xE5C0, 0xE5C1, 0xCA7C
LEAVE, DEEP, JUMP = 0x1EAF, 0xD00, 0x1043


def in_call(probes: Probes, pid: int, call: int) -> object:
    """The one thread, as soon as it sits in the call."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        rows = probes.threads(pid)
        if len(rows) and rows[0]["call"] == call:
            return rows[0]
    raise AssertionError(f"no thread of {pid} in call {call} within {DEADLINE_SECONDS} s")


def test_a_stuck_call_is_seen_with_its_stage_and_its_age(probes: Probes, workload: Workload) -> None:
    workload.do("stage_begin", "-", 8 | 1 << 8, 0, 0)
    before = time.monotonic_ns()
    workload.say("call", "wait", 1, BLOCK)
    thread = in_call(probes, workload.pid, WAIT)
    assert (thread["stage"], thread["modality"], thread["depth"]) == (8, 1, 1)
    assert before < thread["since_ns"] < time.monotonic_ns()
    assert thread["stream"] == BLOCK
    assert probes.count(workload.pid, WAIT) == 0
    workload.say("x")
    workload.wait("the stuck call's end")
    (thread,) = probes.threads(workload.pid)
    assert (thread["call"], thread["depth"]) == (0, 0)
    _, stats = probes.rows(workload.pid, WAIT)
    assert (stats["count"][0], stats["errors"][0]) == (1, 0)
    assert stats["total_ns"][0] > 0


def test_a_call_inside_a_call_leaves_the_outer_one_in_flight(probes: Probes, workload: Workload) -> None:
    workload.call("wait", 103, NEST)
    counts = [probes.count(workload.pid, call) for call in (WAIT, EVENT, CONTEXT)]
    assert counts == [103, 103, 103]
    (thread,) = probes.threads(workload.pid)
    assert (thread["call"], thread["depth"]) == (0, 0)
    outer, inner = probes.rows(workload.pid, WAIT)[1], probes.rows(workload.pid, EVENT)[1]
    assert outer["total_ns"][0] > inner["total_ns"][0]
    assert not outer["abandoned"][0]


def test_a_call_that_ends_by_jumping_to_another_returns_with_it(probes: Probes, workload: Workload) -> None:
    workload.call("wait", 107, JUMP)
    for call in (WAIT, CONTEXT):
        _, stats = probes.rows(workload.pid, call)
        assert (stats["count"][0], stats["abandoned"][0]) == (107, 0)
    (thread,) = probes.threads(workload.pid)
    assert (thread["call"], thread["depth"]) == (0, 0)


def test_a_call_left_by_longjmp_is_counted_as_abandoned(probes: Probes, workload: Workload) -> None:
    workload.do("escape", "-", 23, ESCAPE)
    workload.do("escape", "-", 11, NEST_AND_ESCAPE)
    workload.call("wait", 5)
    _, stats = probes.rows(workload.pid, WAIT)
    assert stats["count"][0] == 23 + 2 * 11 + 5
    assert stats["abandoned"][0] == 23 + 2 * 11
    (thread,) = probes.threads(workload.pid)
    assert (thread["call"], thread["depth"]) == (0, 0)


def test_a_call_that_catches_what_left_an_inner_one_returns_as_usual(
    probes: Probes, workload: Workload
) -> None:
    workload.call("wait", 41, CATCH)
    _, stats = probes.rows(workload.pid, WAIT)
    assert (stats["count"][0], stats["abandoned"][0]) == (82, 41)
    (thread,) = probes.threads(workload.pid)
    assert (thread["call"], thread["depth"]) == (0, 0)


def test_an_abandoned_call_does_not_spoil_the_next_ones_duration(probes: Probes, workload: Workload) -> None:
    workload.do("escape", "-", 1, ESCAPE)
    time.sleep(0.05)
    workload.call("context", 7)
    assert probes.rows(workload.pid, CONTEXT)[1]["total_ns"][0] < 50_000_000


def test_calls_nested_deeper_than_the_state_are_counted_or_lost_by_name(
    probes: Probes, workload: Workload
) -> None:
    lost_before = probes.losses().get("lost_frames", 0)
    workload.call("wait", 1, DEEP + 8)
    lost = probes.losses().get("lost_frames", 0) - lost_before
    assert lost == 4
    counted = probes.count(workload.pid, WAIT)
    # On rung S the link itself keeps the start, so even these are counted.
    assert counted == (9 if probes.rung is Rung.SESSION else 5)
    (thread,) = probes.threads(workload.pid)
    assert (thread["call"], thread["depth"]) == (0, 0)


def test_a_process_that_exits_inside_a_call_is_still_open_and_then_forgotten(
    probes: Probes, workload: Workload
) -> None:
    workload.launch(3)
    workload.say("call", "wait", 1, LEAVE)
    assert workload.process.wait(DEADLINE_SECONDS) == 7
    (thread,) = probes.threads(workload.pid)
    assert thread["call"] == WAIT
    gone = probes.maps.forget_processes([workload.pid])
    assert gone.threads["call"].tolist() == [WAIT]
    assert gone.stats["count"].tolist() == [3]
    assert not len(probes.threads(workload.pid))
    assert probes.count(workload.pid, LAUNCH) == 0


def test_slow_and_failed_calls_are_told(probes: Probes, workload: Workload) -> None:
    probes.maps.read_fast(0)
    probes.maps.set_limits(slow_call_ns=1, event_gap_ns=0)
    try:
        workload.call("wait", 1, 0x51)
        workload.call("event", 1, 0)
    finally:
        probes.maps.set_limits(slow_call_ns=1_000_000_000, event_gap_ns=0)
    events = probes.maps.read_fast(0).events
    ours = events[events["tgid"] == workload.pid]
    told = [(int(row["kind"]), int(row["call"]), int(row["result"])) for row in ours]
    assert told == [(2, WAIT, 0), (3, EVENT, 1)]
    assert ours["stream"][0] == 0x51
    assert (ours["duration_ns"] > 0).all()


def test_one_thread_tells_at_most_once_in_the_gap(probes: Probes, workload: Workload) -> None:
    probes.maps.read_fast(0)
    probes.maps.set_limits(slow_call_ns=1, event_gap_ns=3_600_000_000_000)
    try:
        workload.call("event", 1, 0)
        workload.call("event", 96, 0)
    finally:
        probes.maps.set_limits(slow_call_ns=1_000_000_000, event_gap_ns=0)
    events = probes.maps.read_fast(0).events
    assert len(events[events["tgid"] == workload.pid]) <= 1
    assert probes.rows(workload.pid, EVENT)[1]["errors"][0] == 97
