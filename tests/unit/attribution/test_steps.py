# SPDX-License-Identifier: Apache-2.0
"""When the shape of a thread's steps says that it decodes, and when nothing is claimed."""

from __future__ import annotations

import pytest

from hotstage.attribution.steps import ThreadSteps

SECOND = 1_000_000_000


def test_graph_steps_and_bursts_are_a_language_model() -> None:
    thread = ThreadSteps()
    thread.advance(0, 0, 0, 0)
    shape = thread.advance(2 * SECOND, 50, 44, 5)
    assert shape.is_language_model and thread.is_decided
    assert (shape.steps, shape.graph, shape.burst, shape.seconds) == (50, 44, 5, 2.0)
    assert "22/s" in shape.why


def test_eager_steps_and_few_graphs_claim_nothing() -> None:
    eager, few = ThreadSteps(), ThreadSteps()
    for thread in (eager, few):
        thread.advance(0, 0, 0, 0)
    assert not eager.advance(SECOND, 500, 0, 500).is_language_model
    assert not few.advance(SECOND, 19, 19, 0).is_language_model
    assert not eager.is_decided and not few.is_decided


def test_steps_of_another_shape_end_it_and_a_pause_does_not() -> None:
    thread = ThreadSteps()
    thread.advance(0, 0, 0, 0)
    thread.advance(SECOND, 40, 40, 0)
    thread.advance(60 * SECOND, 40, 40, 0)
    assert thread.is_decided, "nothing was seen that speaks against it"
    thread.advance(61 * SECOND, 140, 60, 0)
    assert not thread.is_decided


def test_a_tid_that_came_back_begins_anew() -> None:
    thread = ThreadSteps()
    thread.advance(0, 0, 0, 0)
    thread.advance(SECOND, 40, 40, 0)
    shape = thread.advance(2 * SECOND, 3, 3, 0)
    assert (shape.steps, thread.is_decided) == (0, False)


def test_looks_in_quick_succession_hold_no_more_than_one_a_second() -> None:
    often, once, idle = ThreadSteps(), ThreadSteps(), ThreadSteps()
    for tenth in range(200):
        at_ns = tenth * SECOND // 10
        shape = often.advance(at_ns, 1 + tenth * 4, tenth * 4, 0)
        idle.advance(at_ns, 0, 0, 0)
        if tenth % 10 == 9:
            wanted = once.advance(at_ns, 1 + tenth * 4, tenth * 4, 0)
    assert shape.graph == pytest.approx(wanted.graph, rel=0.15)
    assert len(often._looks) <= 13
    assert len(idle._looks) == 1
