# SPDX-License-Identifier: Apache-2.0
"""Batches: one stage of the thread, one span of each request, and at the end who had how many tokens."""

from __future__ import annotations

import ctypes
import threading

import pytest

PREFILL, DECODE, TEXT, IMAGE, MIXED = 12, 13, 0 << 8, 1 << 8, 4 << 8
NONE = 255 | 5 << 8


class BatchScope(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint8 * 128),)


def points(seen):
    return [mark[0] for mark in seen.marks]


def shares(part):
    """request → tokens of one part."""
    return {member.request_hash: member.tokens for member in part.member[: part.members]}


def test_the_thread_is_in_the_stage_with_most_tokens_and_each_request_in_its_own(marks, seen):
    first, second = marks.request_hash("r-1"), marks.request_hash("r-2")
    with marks.batch([("r-1", "llm_prefill", 512, "image"), ("r-2", "llm_decode", 1)]):
        begun = list(seen.marks)
    (begin,) = (mark for mark in begun if mark[0] == "batch_begin")
    assert begun == [
        ("span_begin", PREFILL | IMAGE, first, 512),
        ("span_begin", DECODE | MIXED, second, 1),
        ("batch_begin", begin[1], PREFILL | MIXED),
    ]
    assert seen.marks[3:] == [
        ("batch_end", begin[1], NONE, 2),
        ("span_end", PREFILL | IMAGE, first, 512),
        ("span_end", DECODE | MIXED, second, 1),
    ]


def test_the_end_tells_each_members_tokens_stage_and_modality(marks, seen):
    request = marks.request("r-2")
    with marks.batch([("r-1", "llm_prefill", 512, "image"), [request, "llm_decode", 1]]):
        pass
    (part,) = seen.parts
    assert (part.version, part.size, ctypes.sizeof(part)) == (1, 1056, 1056)
    assert (part.word, part.tokens_total, part.members, part.members_total) == (PREFILL | MIXED, 513, 2, 2)
    told = [(each.request_hash, each.tokens, each.stage, each.modality) for each in part.member[:2]]
    assert told == [(marks.request_hash("r-1"), 512, PREFILL, 1), (request.hash, 1, DECODE, 4)]


def test_batches_have_ids_of_their_own(marks, seen):
    for _ in range(3):
        with marks.batch([("r-1", "llm_decode", 1)]):
            pass
    assert len({part.batch_id for part in seen.parts}) == 3


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
def test_a_large_batch_ends_in_parts_of_the_same_batch(marks, seen, count):
    with marks.batch((f"r-{number}", "llm_decode", number) for number in range(count)):
        pass
    parts = seen.parts
    assert [part.members for part in parts] == [64] * (count // 64) + [count % 64] * (count % 64 > 0)
    assert len({(part.batch_id, part.tokens_total, part.members_total) for part in parts}) == 1
    assert parts[0].members_total == count
    told = {request: tokens for part in parts for request, tokens in shares(part).items()}
    assert told == {marks.request_hash(f"r-{number}"): max(1, number) for number in range(count)}
    assert parts[0].tokens_total == sum(told.values())


def test_a_member_without_tokens_has_a_share_and_its_span_says_none(marks, seen):
    with marks.batch([("r-1", "llm_decode", 0), ("r-2", "llm_decode", -7)]):
        pass
    (part,) = seen.parts
    assert (part.tokens_total, set(shares(part).values())) == (2, {1})
    assert {mark[3] for mark in seen.marks if mark[0].startswith("span")} == {0}


def test_at_a_tie_the_stage_that_comes_first_in_the_pipeline_wins(marks, seen):
    with marks.batch([("r-1", "llm_decode", 4), ("r-2", "llm_prefill", 4)]):
        pass
    assert seen.parts[0].word & 0xFF == PREFILL


def test_a_batch_without_spans_tells_the_shares_alone(marks, seen):
    with marks.batch([("r-1", "llm_decode", 1)], spans=False):
        pass
    assert points(seen) == ["batch_begin", "batch_end"]
    assert shares(seen.parts[0]) == {marks.request_hash("r-1"): 1}


def test_a_member_of_no_request_has_its_share_and_no_span(marks, seen):
    with marks.request("r-9"), marks.batch([(None, "llm_decode", 3), ("r-1", "llm_decode", 1)]):
        pass
    assert shares(seen.parts[0]) == {0: 3, marks.request_hash("r-1"): 1}
    assert points(seen).count("span_begin") == 1


def test_stages_nest_with_batches_both_ways(marks, seen):
    batch = marks.batch([("r-1", "llm_decode", 1)], modality="text")
    with marks.stage("preprocess"), batch, marks.stage("sample", request="r-1"):
        pass
    assert points(seen) == [
        "stage_begin",
        "span_begin",
        "batch_begin",
        "stage_begin",
        "stage_end",
        "batch_end",
        "span_end",
        "stage_end",
    ]
    assert seen.marks[4][3] == DECODE | TEXT, "the inner stage gives the thread back to the batch"
    assert seen.marks[5][2] == 3 | 5 << 8, "the batch gives it back to the outer stage"


def test_what_a_batch_leaves_open_above_it_is_closed_with_it(marks, seen):
    batch = marks.batch([("r-1", "llm_decode", 1)]).begin()
    marks.stage("sample").begin()
    batch.end()
    assert points(seen)[-3:] == ["stage_end", "batch_end", "span_end"]
    with marks.stage("queue"):
        pass
    assert seen.marks[-1][3] == NONE


def test_a_batch_that_an_outer_stage_has_closed_tells_no_shares(fresh):
    marks, seen = fresh
    outer = marks.stage("preprocess").begin()
    batch = marks.batch([("r-1", "llm_decode", 1)]).begin()
    outer.end()
    batch.end()
    assert points(seen)[-3:] == ["stage_end", "stage_end", "span_end"]
    assert not seen.parts
    assert marks.statistics()["batches_broken"] == 1


def test_a_batch_inside_a_batch_is_a_stage_of_the_outer_one(fresh):
    marks, seen = fresh
    with marks.batch([("r-1", "llm_decode", 1)]), marks.batch([("r-2", "vision_encode", 9)]):
        pass
    assert [mark for mark in points(seen) if not mark.startswith("span")] == [
        "batch_begin",
        "stage_begin",
        "stage_end",
        "batch_end",
    ]
    assert [shares(part) for part in seen.parts] == [{marks.request_hash("r-1"): 1}]
    assert marks.statistics()["batches_nested"] == 1


def test_a_batch_below_a_full_stack_touches_the_requests_only(fresh):
    marks, seen = fresh
    stages = [marks.stage("other").begin() for _ in range(16)]
    with marks.batch([("r-1", "llm_decode", 1)]):
        pass
    for stage in reversed(stages):
        stage.end()
    assert points(seen) == ["stage_begin"] * 16 + ["span_begin", "span_end"] + ["stage_end"] * 16
    assert marks.statistics()["batches_broken"] == 1


def test_a_batch_ended_on_another_thread_ends_its_spans_alone(fresh):
    marks, seen = fresh
    batch = marks.batch([("r-1", "llm_decode", 1)]).begin()
    thread = threading.Thread(target=batch.end)
    thread.start()
    thread.join()
    assert points(seen) == ["span_begin", "batch_begin", "span_end"]
    assert marks.statistics()["batches_broken"] == 1


def test_a_batch_that_is_dropped_ends(marks, seen):
    marks.batch([("r-1", "llm_decode", 1)]).begin()
    assert points(seen) == ["span_begin", "batch_begin", "batch_end", "span_end"]


def test_a_batch_belongs_to_no_current_request(marks, seen):
    with marks.request("r-9"), marks.batch([("r-1", "llm_decode", 1)]):
        pass
    assert {mark[2] for mark in seen.marks if mark[0].startswith("span")} == {marks.request_hash("r-1")}


def test_a_batch_ends_once_and_may_begin_again(marks, seen):
    one = marks.batch([("r-1", "llm_decode", 1)])
    for _ in range(2):
        one.begin().begin()
        one.end()
        one.end()
    assert len(seen.marks) == 8


def test_nobody_listening_means_that_the_members_are_not_even_looked_at(unwatched):
    looked = []
    with unwatched.batch(looked.append(1) for _ in range(3)):
        pass
    assert not looked


@pytest.mark.parametrize("nonsense", [None, 7, [1], ["abc"], [("r-1",)], [("r-1", "queue", "many")], [], ()])
def test_nonsense_tells_nothing_and_raises_nothing(marks, seen, nonsense):
    with marks.batch(nonsense):
        pass
    assert not seen.marks


def test_members_that_make_no_sense_are_left_out_and_counted(fresh):
    marks, seen = fresh
    with marks.batch([("r-1", "llm_decode", 1), ("r-2", "llm_decode"), None, ("r-3", "llm_decode", 2.5)]):
        pass
    assert shares(seen.parts[0]) == {marks.request_hash("r-1"): 1}
    assert marks.statistics()["members_malformed"] == 3


def test_what_the_members_raise_is_not_the_servers_but_an_interrupt_is(marks, seen):
    def members(error):
        yield "r-1", "llm_decode", 1
        raise error

    with marks.batch(members(ValueError())):
        pass
    assert len(seen.parts) == 1
    with pytest.raises(KeyboardInterrupt):
        marks.batch(members(KeyboardInterrupt())).begin()
    assert points(seen).count("span_begin") == points(seen).count("span_end") == 1


def test_a_huge_batch_is_told_to_its_4096th_member_and_the_rest_is_counted(fresh):
    marks, seen = fresh
    library = seen.library
    members = (seen.member_type * 5000)(*((number + 1, 1, DECODE) for number in range(5000)))
    scope = BatchScope()
    library.hotstage_batch_begin(
        ctypes.byref(scope), members, ctypes.c_uint32(5000), ctypes.c_uint64(0), ctypes.c_uint32(1)
    )
    library.hotstage_batch_end(ctypes.byref(scope))
    assert [part.members for part in seen.parts] == [64] * 64
    assert {(part.tokens_total, part.members_total) for part in seen.parts} == {(5000, 4096)}
    assert marks.statistics()["members_cut"] == 904


def test_a_list_without_an_end_is_not_read_for_ever(marks, seen):
    def endless():
        while True:
            yield None

    with marks.batch(endless()):
        pass
    assert not seen.marks
