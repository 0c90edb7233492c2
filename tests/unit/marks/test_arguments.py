# SPDX-License-Identifier: Apache-2.0
"""Whatever a server passes, nothing is raised into it."""

from __future__ import annotations

import pytest


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")

    def __index__(self):
        raise RuntimeError("no number")

    def __hash__(self):
        raise RuntimeError("no hash")


NONSENSE = (
    None,
    -1,
    2**70,
    3.5,
    b"bytes",
    "",
    "no such name",
    "\ud800",
    object(),
    Hostile(),
    [],
    float("nan"),
)


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: type(value).__name__)
def test_nonsense_becomes_a_default(marks, seen, value):
    with marks.request(value, endpoint=value, instance=value, model=value, traceparent=value) as request:
        with marks.stage(value, modality=value, tokens=value, request=value) as scope:
            scope.tokens = value
            marks.tokens(value, request=value)
        with marks.span(value, tokens=value):
            request.tokens(value)
        request.end(outcome=value, output_tokens=value)
    marks.request_begin(value)
    marks.request_end(value, outcome=value, output_tokens=value)
    marks.request_hash(value)
    word = (marks.define_stage(value) if value == "no such name" else 17) | 5 << 8
    assert {mark[1] for mark in seen.marks if mark[0] == "span_begin"} == {word}
    tokens = {mark[3] for mark in seen.marks if mark[0] in ("span_begin", "tokens")}
    assert tokens == {0}


def test_missing_and_unknown_arguments_are_harmless(marks, seen):
    with marks.stage(), marks.stage("queue", 1, 2, None, "surplus", colour="red"):
        marks.tokens()
    marks.request().begin().end()
    marks.request_end()
    assert [mark[1] for mark in seen.marks[:2]] == [17 | 5 << 8, 5 | 1 << 8]


def test_an_argument_name_built_at_run_time_is_recognised(marks, seen):
    marks.span("queue", **{"".join(["mod", "ality"]): "video"}).begin()
    assert seen.marks[0][1] == 5 | 3 << 8
