# SPDX-License-Identifier: Apache-2.0
"""Stages that a server makes up: 32 in a process, each with an id that means it for the process's life."""

from __future__ import annotations

import ctypes
import os
import threading

import pytest

from hotstage_marks import _native

OTHER, UNKNOWN = 17, 5 << 8


def id_of(seen, name):
    identify = seen.library.hotstage_stage_id
    identify.restype = ctypes.c_uint64
    return identify(name)


def name_of(seen, stage):
    name = seen.library.hotstage_stage_name
    name.restype = ctypes.c_char_p
    return name(ctypes.c_uint64(stage))


def told(seen):
    return [mark[1] for mark in seen.marks if mark[0] == "stage_name"]


def test_a_name_that_is_not_pinned_gets_the_next_id_and_keeps_it(fresh):
    marks, seen = fresh
    with marks.stage("my_reranker", modality="text"), marks.span("safety filter", request="r-1"):
        pass
    words = [mark[1] for mark in seen.marks if mark[0].endswith("begin")]
    assert words == [32, 33 | UNKNOWN]
    assert marks.define_stage("my_reranker") == id_of(seen, b"my_reranker") == 32
    assert marks.statistics()["stages"] == {"my_reranker": 32, "safety filter": 33}


def test_the_watcher_is_told_a_name_before_its_first_use_and_not_at_each(fresh):
    marks, seen = fresh
    for _ in range(3):
        with marks.stage("my_reranker"):
            pass
    assert [mark[0] for mark in seen.marks[:2]] == ["stage_name", "stage_begin"]
    assert told(seen) == [32]
    assert seen.name == "my_reranker"


@pytest.mark.parametrize("use", ["stage", "span", "span_begin", "batch", "embedding"])
def test_every_way_to_use_a_name_tells_it(fresh, use):
    marks, seen = fresh
    number = bytearray(4)
    if use == "batch":
        marks.batch([("r-1", "my_reranker", 1)]).begin()
    elif use == "embedding":
        marks.embedding(memoryview(number).cast("f"), stage="my_reranker", request="r-1")
    elif use == "span_begin":
        marks.span_begin("my_reranker", request="r-1")
    else:
        getattr(marks, use)("my_reranker", request="r-1").begin()
    assert told(seen) == [32]


def test_a_forked_child_tells_its_names_itself(fresh):
    marks, seen = fresh
    marks.stage("my_reranker").begin()
    child = os.fork()
    if not child:
        marks.stage("my_reranker").begin()
        os._exit(len(told(seen)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_the_33rd_name_counts_as_other_and_is_counted(fresh):
    marks, seen = fresh
    ids = [marks.define_stage(f"stage {number}") for number in range(32)]
    assert ids == list(range(32, 64))
    with marks.stage("one too many"):
        pass
    assert seen.marks[0][1] == OTHER | UNKNOWN
    assert marks.define_stage("another") == OTHER
    assert marks.define_stage("stage 7") == 39
    assert marks.statistics()["stages_refused"] == 2


def test_a_million_names_are_bounded(fresh):
    marks, _ = fresh
    for number in range(20_000):
        marks.span(f"stage {number}")
    statistics = marks.statistics()
    assert (len(statistics["stages"]), statistics["stages_refused"]) == (32, 20_000 - 32)


def test_many_threads_give_one_name_one_id(fresh):
    _, seen = fresh
    found, gate = [], threading.Barrier(8)

    def define():
        gate.wait()
        found.append([id_of(seen, f"stage {number % 31}".encode()) for number in range(310)])

    threads = [threading.Thread(target=define) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == found[0] for ids in found)
    assert len(set(found[0])) == 31


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b"with space-and.dots:1", b"with space-and.dots:1"),
        (b"line\nbreak\x00unseen", b"line_break"),
        (b"\x1b[31mred\x7f", b"_[31mred_"),
        ("größer".encode(), "größer".encode()),
        (b"\xff\xc3(", b"__("),
        (b"\xc0\xaf\xed\xa0\x80", b"_____"),
        ("é".encode() * 20, "é".encode() * 15),
        (("x" * 30 + "é").encode(), b"x" * 30),
        (("x" * 29 + "é").encode(), ("x" * 29 + "é").encode()),
        ("🙂".encode() * 9, "🙂".encode() * 7),
        (b"x" * 10_000, b"x" * 31),
        (b"cut at the end \xe2\x82", b"cut at the end __"),
        ("\u0085\u0007".encode(), b"___"),
    ],
)
def test_names_are_clean_and_cut_between_characters(fresh, given, kept):
    _, seen = fresh
    stage = id_of(seen, given)
    assert (stage, name_of(seen, stage)) == (32, kept)
    assert id_of(seen, kept) == stage


@pytest.mark.parametrize("name", [b"", None])
def test_no_name_is_no_stage_of_its_own(fresh, name):
    marks, seen = fresh
    assert id_of(seen, name) == OTHER
    assert marks.statistics()["stages"] == {}
    assert marks.statistics()["stages_refused"] == 0


def test_pinned_names_keep_their_ids_in_c(fresh):
    _, seen = fresh
    assert [id_of(seen, name_of(seen, stage)) for stage in range(18)] == list(range(18))
    assert name_of(seen, 18) is name_of(seen, 32) is name_of(seen, 255) is None


@pytest.mark.parametrize("stage", [18, 31, 32, 63, 64, 254, 1 << 16, 1 << 63])
def test_an_id_that_nobody_was_given_counts_as_other(fresh, stage):
    marks, seen = fresh
    scope = (ctypes.c_uint64 * 8)()
    seen.library.hotstage_span_begin(
        scope, ctypes.c_uint64(stage), ctypes.c_uint64(5), ctypes.c_uint64(1), ctypes.c_uint64(0)
    )
    marks.span(stage, request="r-1").begin()
    assert {mark[1] for mark in seen.marks} == {OTHER | UNKNOWN}


def test_lora_is_in_the_words_bits(marks, seen):
    with marks.stage("lora_apply", modality="text", lora_rank=16, lora_module="q_proj"):
        pass
    marks.span_begin("lora_apply", lora_rank=70_000, lora_module="gate_up_proj", request="r-1")
    marks.span_begin("lora_apply", lora_rank=8, request="r-1")
    marks.span_begin("lora_apply", lora_rank=8, lora_module="some new one", request="r-1")
    words = [mark[1] for mark in seen.marks]
    assert words == [
        7 | 16 << 16 | 1 << 32,
        7 | 16 << 16 | 1 << 32,
        7 | UNKNOWN | 0xFFFF << 16 | 9 << 32,
        7 | UNKNOWN | 8 << 16,
        7 | UNKNOWN | 8 << 16 | 15 << 32,
    ]


def test_lora_belongs_to_lora_apply_alone(marks, seen):
    with marks.stage("llm_decode", lora_rank=16, lora_module="q_proj"):
        pass
    assert {mark[1] for mark in seen.marks} == {13 | UNKNOWN}


def test_lora_nonsense_is_harmless(marks, seen):
    for rank, module in ((-1, -1), ("many", object()), (2**70, 2**70), (None, None)):
        marks.span("lora_apply", lora_rank=rank, lora_module=module, request="r-1").begin()
    assert [mark[1] >> 16 & 0xFFFF for mark in seen.marks] == [0] * 4
    assert [mark[1] >> 32 for mark in seen.marks] == [15, 15, 15, 0]


def test_the_extension_and_the_library_for_c_are_one_table():
    library = ctypes.CDLL(_native.__file__.rpartition("/")[0] + "/libhotstage_marks.so")
    library.hotstage_stage_id.restype = ctypes.c_uint64
    stage = _native.define_stage("one table")
    assert stage != OTHER
    assert library.hotstage_stage_id(b"one table") == stage
