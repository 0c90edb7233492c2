# SPDX-License-Identifier: Apache-2.0
"""What a program's ranges become, call by call, as a watcher would see it."""

from __future__ import annotations

import ctypes
import os
import threading

from tests.unit.marks.conftest import Recording
from tests.unit.marks.nvtx.conftest import NO_TRACKING, REGISTERED, UNICODE, Program

FROM_NVTX = 2 << 40
VISION, PREFILL, DECODE, SAMPLE, QUEUE = (word | FROM_NVTX for word in (8 | 1 << 8, 12, 13, 15, 5 | 5 << 8))
NONE = 255 | 5 << 8


def hash_of(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def test_a_range_with_a_stages_name_is_that_stage_of_its_thread(program: Program, seen: Recording):
    assert program.push(b"vision_encode") == 0
    assert program.pop() == 0
    assert seen.marks == [("stage_begin", VISION, 0, 0), ("stage_end", VISION, 0, NONE, 0)]


def test_a_range_that_no_rule_knows_is_nothing_and_keeps_its_place_in_the_nesting(
    program: Program, seen: Recording
):
    depths = [program.push(name) for name in (b"llm_prefill", b"layer", b"attention")]
    assert [*depths, program.pop(), program.pop()] == [0, 1, 2, 2, 1]
    assert seen.marks == [("stage_begin", PREFILL, 0, 0)]
    program.pop()
    assert seen.marks[1:] == [("stage_end", PREFILL, 0, NONE, 0)]


def test_an_inner_stage_gives_the_outer_one_back(program: Program, seen: Recording):
    for name in (b"llm_decode", b"sample"):
        program.push(name)
    for _ in range(2):
        program.pop()
    assert seen.marks[2:] == [("stage_end", SAMPLE, 0, DECODE, 0), ("stage_end", DECODE, 0, NONE, 0)]


def test_every_way_to_say_a_name_is_heard(program: Program, seen: Recording):
    wide = ctypes.create_unicode_buffer("Llm_Decode")
    domain = program.create(b"app")
    program.push_w("llm_decode"), program.pop()
    program.push_ex(program.event(b"llm_decode")), program.pop()
    program.push_ex(program.event(ctypes.addressof(wide), UNICODE)), program.pop()
    for handle in (program.register(domain, b"llm_decode"), program.register_w(domain, "LLM_DECODE")):
        program.domain_push(domain, program.event(handle, REGISTERED)), program.domain_pop(domain)
    assert [mark[:2] for mark in seen.marks] == [("stage_begin", DECODE), ("stage_end", DECODE)] * 5


def test_events_without_a_usable_message_are_nothing(program: Program, seen: Recording):
    short = program.event(b"llm_decode")
    short.contents.size = 24
    nothing = (None, program.event(None), program.event(None, UNICODE), program.event(0, REGISTERED))
    for event in (*nothing, short, program.event(0x1000, REGISTERED), program.event(b"llm_decode", 77)):
        program.push_ex(event)
        program.pop()
    program.push(None), program.push_w(None), program.pop(), program.pop()
    program.end(program.start(None)), program.end(program.start_w(None))
    assert seen.marks == []


def test_each_domain_has_its_own_nesting_and_they_may_cross(program: Program, seen: Recording):
    one, two = program.create(b"one"), program.create(b"two")
    program.domain_push(one, program.event(b"llm_prefill"))
    program.domain_push(two, program.event(b"sample"))
    program.domain_pop(one)
    assert seen.marks[-1] == ("stage_begin", SAMPLE, 0, 0), "the thread is still in the other domain's range"
    program.domain_pop(two)
    assert seen.marks[-1] == ("stage_end", SAMPLE, 0, NONE, 0)


def test_a_domain_of_the_same_name_is_the_same_domain(program: Program, seen: Recording):
    assert program.create(b"again") == program.create(b"again") == program.create_w("again")
    assert not program.create(b"")


def test_threads_do_not_see_each_others_ranges(program: Program, seen: Recording):
    program.push(b"llm_prefill")
    other = threading.Thread(target=lambda: (program.push(b"sample"), program.pop(), program.pop()))
    other.start()
    other.join(10)
    program.pop()
    assert seen.marks[2] == ("stage_end", SAMPLE, 0, NONE, 0)
    assert seen.marks[3] == ("stage_end", PREFILL, 0, NONE, 0)
    assert len(seen.marks) == 4


def test_unbalanced_ends_are_counted_and_change_nothing(program: Program, seen: Recording):
    before = program.counters["unbalanced"]
    assert program.pop() == NO_TRACKING
    program.end(2**63 | 17)
    program.end(0)
    program.push(b"sample"), program.pop(), program.pop()
    assert program.counters["unbalanced"] - before == 3
    assert [mark[0] for mark in seen.marks] == ["stage_begin", "stage_end"]


def test_what_is_too_deep_is_counted_and_ends_in_order(program: Program, seen: Recording):
    before = program.counters["too_deep"]
    for _ in range(100):
        program.push(b"llm_decode")
    assert program.counters["too_deep"] - before == 84
    for _ in range(100):
        program.pop()
    assert [mark[0] for mark in seen.marks] == ["stage_begin"] * 16 + ["stage_end"] * 16
    assert seen.marks[-1] == ("stage_end", DECODE, 0, NONE, 0)


def test_libraries_domains_are_ignored_whatever_their_ranges_are_called(program: Program, seen: Recording):
    for name in (b"NCCL", b"com.nvidia.nccl.proxy", b"CUDNN", b"cuBLAS", b"cuBLASLt", b"cuSPARSE", b"CCCL"):
        domain = program.create(name)
        handle = program.register(domain, b"llm_decode")
        for event in (program.event(b"llm_decode"), program.event(handle, REGISTERED)):
            assert program.domain_push(domain, event) == NO_TRACKING
            program.domain_end(domain, program.domain_start(domain, event))
            assert program.domain_pop(domain) == NO_TRACKING
    assert seen.marks == []


def test_a_started_request_and_its_span_end_on_another_thread(program: Program, seen: Recording):
    domain = program.create(b"hotstage")
    request = program.domain_start(domain, program.event(b"request req-42"))
    queue = program.domain_start(domain, program.event(b"queue req-42"))
    ending = threading.Thread(target=lambda: (program.domain_end(domain, queue), program.end(request)))
    ending.start()
    ending.join(10)
    program.end(queue)
    wanted = hash_of("req-42")
    assert seen.request.id == b"req-42"
    assert seen.marks == [
        ("request_begin", wanted),
        ("span_begin", QUEUE, wanted, 0),
        ("span_end", QUEUE, wanted, 0),
        ("request_end", wanted, 0, 0),
    ]


def test_stages_inside_a_pushed_request_are_its_stages(program: Program, seen: Recording):
    domain = program.create(b"hotstage")
    handle = program.register(domain, b"request req-43")
    program.domain_push(domain, program.event(handle, REGISTERED))
    program.push(b"sample")
    span = program.start(b"llm_decode")
    program.end(span), program.pop(), program.domain_pop(domain)
    assert [mark[:3] for mark in seen.marks if "st" in mark[0][:2] or "span" in mark[0]] == [
        (point, word, hash_of("req-43"))
        for point, word in (
            ("stage_begin", SAMPLE),
            ("span_begin", DECODE),
            ("span_end", DECODE),
            ("stage_end", SAMPLE),
        )
    ]


def test_a_started_stage_of_nobodys_request_is_counted(program: Program, seen: Recording):
    before = program.counters["no_request"]
    ids = [program.start(b"llm_decode") for _ in range(3)]
    assert len({*ids, 0}) == 4, "each has an id of its own, never 0"
    assert program.counters["no_request"] - before == 3
    assert seen.marks == []


def test_more_open_started_ranges_than_there_is_room_for_are_counted(program: Program, seen: Recording):
    domain = program.create(b"hotstage")
    before = program.counters["too_many_started"]
    ids = [program.domain_start(domain, program.event(b"queue r%d" % i)) for i in range(5000)]
    assert program.counters["too_many_started"] - before == 5000 - 4096
    for identifier in ids:
        program.end(identifier)
    assert seen._count.value == 2 * 4096
    assert program.counters["unbalanced"] >= 0
    last = program.domain_start(domain, program.event(b"queue last"))
    assert last >> 63, "all room is free again"
    program.end(last)


def test_a_forked_child_goes_on_by_itself(program: Program, seen: Recording):
    program.push(b"llm_prefill")
    child = os.fork()
    if not child:
        depth = program.push(b"sample")
        program.pop()
        program.pop()
        os._exit(0 if depth == 1 and len(seen.marks) == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    program.pop()
    assert len(seen.marks) == 2
