# SPDX-License-Identifier: Apache-2.0
"""Batches: one stage of the thread, one span of each request."""

from __future__ import annotations

import pytest

from hotstage_marks import _batch

PREFILL, DECODE, TEXT, IMAGE, MIXED = 12, 13, 0 << 8, 1 << 8, 4 << 8


@pytest.fixture(autouse=True)
def batch(marks, monkeypatch):
    monkeypatch.setattr(_batch, "marks", marks)
    return _batch.batch


def test_the_thread_is_in_the_stage_with_most_tokens_and_each_request_in_its_own(marks, seen, batch):
    first, second = marks.request_hash("r-1"), marks.request_hash("r-2")
    with batch([("r-1", "llm_prefill", 512, "image"), ("r-2", "llm_decode", 1)]):
        begun = list(seen.marks)
    assert begun == [
        ("span_begin", PREFILL | IMAGE, first, 512),
        ("span_begin", DECODE | MIXED, second, 1),
        ("stage_begin", PREFILL | MIXED, 0, 513),
    ]
    assert seen.marks[3:] == [
        ("stage_end", PREFILL | MIXED, 0, 255 | 5 << 8, 513),
        ("span_end", PREFILL | IMAGE, first, 512),
        ("span_end", DECODE | MIXED, second, 1),
    ]


def test_a_batch_belongs_to_no_current_request(marks, seen, batch):
    with marks.request("r-9"), batch([("r-1", "llm_decode", 1)]):
        pass
    assert {mark[2] for mark in seen.marks if mark[0].startswith("stage")} == {0}


def test_a_batch_ends_once_and_may_begin_again(seen, batch):
    one = batch([("r-1", "llm_decode", 1)])
    for _ in range(2):
        one.begin().begin()
        one.end()
        one.end()
    assert len(seen.marks) == 8


def test_nobody_listening_means_that_the_members_are_not_even_looked_at(marks, seen, batch, monkeypatch):
    monkeypatch.setattr(marks, "is_watched", lambda: False)
    looked = []
    with batch(looked.append(1) for _ in range(3)):
        pass
    assert not looked
    assert not seen.marks


@pytest.mark.parametrize("nonsense", [None, 7, [1], [("r-1",)], [("r-1", "llm_decode", "many")], [], ()])
def test_nonsense_tells_nothing_and_raises_nothing(seen, batch, nonsense):
    with batch(nonsense):
        pass
    begins = [mark for mark in seen.marks if mark[0].endswith("begin")]
    assert 2 * len(begins) == len(seen.marks)
    assert not [mark for mark in begins if mark[0].startswith("stage")]


def test_a_huge_batch_is_bounded(seen, batch, monkeypatch):
    monkeypatch.setattr(_batch, "MAX_MEMBERS", 3)
    with batch((f"r-{number}", "llm_decode", 1) for number in range(10)):
        pass
    assert [mark[0] for mark in seen.marks].count("span_begin") == 3
    assert [mark[3] for mark in seen.marks if mark[0] == "stage_begin"] == [10]
