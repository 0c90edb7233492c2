# SPDX-License-Identifier: Apache-2.0
"""First tokens and the time between tokens, by what the marks said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.kernel_rows import MS, KernelRequest, Stage

from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.first_token import BASES, NO_BASIS, first_tokens
from hotstage.stages.timeline import timeline_of

START = 10_000 * MS


def told(*spans, total=100, output=0, words=()):
    """(ttft ms, basis, itl ms) of one request; `words`: (ms, output tokens so far)."""
    request = KernelRequest(1, at_ns=START)
    for stage, began, ended in spans:
        request.begin(stage, START + began * MS)
        if ended is not None:
            request.end(stage, START + ended * MS)
    row = request.finished(START + total * MS, 0, output)
    if words:
        (first, tokens), (last, all_tokens) = words[0], words[-1]
        row["first_token_ns"], row["first_tokens"] = START + first * MS, tokens
        row["last_token_ns"], row["last_tokens"] = START + last * MS, all_tokens
    rows = np.array([row], FINISHED_DTYPE)
    found = first_tokens(rows, timeline_of(rows))
    basis = None if found.basis[0] == NO_BASIS else BASES[found.basis[0]]
    return found.ttft_ns[0] / MS, basis, found.itl_seconds[0] * 1e3


PREFILL = (Stage.llm_prefill, 10, 40)


def test_the_first_token_is_the_begin_of_decode():
    assert told(PREFILL, (Stage.llm_decode, 50, 90), output=5) == (50, "decode_begin", pytest.approx(10))


def test_a_decode_that_is_marked_before_the_end_of_prefill_begins_there():
    assert told(PREFILL, (Stage.llm_decode, 20, 90), output=6) == (40, "decode_begin", pytest.approx(10))


def test_a_decode_in_several_runs_leaves_the_end_of_prefill():
    ttft, basis, itl = told(PREFILL, (Stage.llm_decode, 50, 60), (Stage.llm_decode, 70, 90), output=5)
    assert (ttft, basis) == (40, "prefill_end")
    assert math.isnan(itl)


def test_prefill_alone_makes_a_token_only_where_one_was_counted():
    assert told(PREFILL, output=1)[:2] == (40, "prefill_end")
    assert told(PREFILL)[:2] == (-1 / MS, None)


@pytest.mark.parametrize("output", [0, 1])
def test_below_two_tokens_there_is_no_time_between_them(output):
    assert math.isnan(told(PREFILL, (Stage.llm_decode, 50, 90), output=output)[2])


def test_a_decode_that_never_ended_has_a_first_token_and_no_last():
    ttft, basis, itl = told(PREFILL, (Stage.llm_decode, 50, None), output=5)
    assert (ttft, basis) == (50, "decode_begin")
    assert math.isnan(itl)


DECODE = (Stage.llm_decode, 50, 90)


def test_a_word_of_one_token_is_the_first_token():
    found = told(PREFILL, DECODE, output=5, words=[(60, 1), (80, 5)])
    assert found == (60, "tokens_mark", pytest.approx(5))


def test_a_word_of_several_tokens_comes_after_the_first_of_them():
    found = told(PREFILL, DECODE, output=9, words=[(60, 4), (90, 9)])
    assert found == (50, "decode_begin", pytest.approx(5))
    assert told(output=9, words=[(60, 4), (85, 9)]) == (60, "tokens_mark", pytest.approx(5))


def test_all_tokens_told_at_once_leave_the_interval_of_decode():
    assert told(PREFILL, DECODE, output=5, words=[(90, 5)]) == (50, "decode_begin", pytest.approx(10))


def test_one_token_that_was_told_has_no_interval():
    ttft, basis, itl = told(output=1, words=[(60, 1)])
    assert (ttft, basis) == (60, "tokens_mark")
    assert math.isnan(itl)


def test_words_from_before_the_request_are_none_of_it():
    ttft, _, itl = told(output=3, words=[(-50, 1), (-40, 3)])
    assert ttft == 0
    assert math.isnan(itl)


def test_no_request_gives_nothing():
    rows = np.zeros(0, FINISHED_DTYPE)
    assert len(first_tokens(rows, timeline_of(rows)).ttft_ns) == 0
