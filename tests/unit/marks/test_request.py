# SPDX-License-Identifier: Apache-2.0
"""Requests from Python: begin, end, outcome, the context that carries them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest


def test_a_request_says_who_it_is(marks, seen):
    with marks.request("r-1", endpoint="/v1/encode", instance="i-0", model="vlm", traceparent="00-ab"):
        pass
    request = seen.request
    assert (request.id, request.endpoint, request.instance) == (b"r-1", b"/v1/encode", b"i-0")
    assert (request.model, request.traceparent) == (b"vlm", b"00-ab")
    assert [mark[0] for mark in seen.marks] == ["request_begin", "request_end"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, 0), (ValueError, 1), (asyncio.CancelledError, 2), (KeyboardInterrupt, 2)],
)
def test_the_outcome_follows_from_how_the_block_was_left(marks, seen, error, outcome):
    def serve():
        with marks.request("r-1"):
            if error:
                raise error

    if error:
        with pytest.raises(error):
            serve()
    else:
        serve()
    assert seen.marks[-1][2] == outcome


def test_a_request_ends_once_with_the_outcome_said_first(marks, seen):
    with marks.request("r-1") as request:
        request.end("refused", output_tokens=3)
    assert seen.marks[1:] == [("request_end", request.hash, 3, 3)]


def test_progress_is_remembered_for_the_end(marks, seen):
    with marks.request("r-1") as request:
        marks.tokens(16)
        with marks.stage("llm_decode", modality="text"):
            request.tokens(17)
    assert ("tokens", request.hash, 255 | 5 << 8, 16) in seen.marks
    assert ("tokens", request.hash, 13, 17) in seen.marks
    assert seen.marks[-1] == ("request_end", request.hash, 0, 17)


def test_begin_and_end_by_id_need_no_object(marks, seen):
    marks.request_begin("r-9", endpoint="/v1")
    marks.request_end("r-9", outcome="cancelled", output_tokens=4)
    assert seen.marks[1] == ("request_end", marks.request_hash("r-9"), 2, 4)


def test_each_task_has_its_own_current_request(marks):
    async def serve(rid):
        with marks.request(rid):
            await asyncio.sleep(0)
            return marks.current_request().id

    async def both():
        return await asyncio.gather(serve("r-1"), serve("r-2"))

    assert asyncio.run(both()) == ["r-1", "r-2"]
    assert marks.current_request() is None


def test_nested_requests_give_the_outer_one_back(marks):
    with marks.request("outer") as outer:
        with marks.request("inner"):
            pass
        assert marks.current_request() is outer
    assert marks.current_request() is None


def test_leaving_in_another_context_is_harmless(marks, seen):
    import contextvars

    request = marks.request("r-1")
    contextvars.copy_context().run(request.__enter__)
    request.__exit__(None, None, None)
    assert [mark[0] for mark in seen.marks] == ["request_begin", "request_end"]


def test_a_forgotten_request_is_collected(marks):
    class Text(str):
        pass

    text = Text("r-1")
    watcher = weakref.ref(text)
    import contextvars

    contextvars.copy_context().run(marks.request(text).__enter__)
    del text
    gc.collect()
    assert watcher() is None
