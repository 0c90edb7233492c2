# SPDX-License-Identifier: Apache-2.0
"""Functions that are stages."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from hotstage_marks import _staged


@pytest.fixture(autouse=True)
def staged(marks, monkeypatch):
    monkeypatch.setattr(_staged, "marks", marks)
    return _staged.staged


def points(seen):
    return [mark[0] for mark in seen.marks]


def test_a_function_is_its_threads_and_its_requests_stage(marks, seen, staged):
    @staged("vision_encode", modality="image", tokens=9)
    def encode(image, *, scale=1):
        "Encode it."
        return image * scale

    with marks.request("r-1") as request:
        assert encode(2, scale=3) == 6
    assert seen.marks[1:3] == [
        ("stage_begin", 8 | 1 << 8, request.hash, 9),
        ("stage_end", 8 | 1 << 8, request.hash, 255 | 5 << 8, 9),
    ]
    assert (encode.__name__, encode.__doc__) == ("encode", "Encode it.")
    assert list(inspect.signature(encode).parameters) == ["image", "scale"]


def test_what_a_function_raises_goes_on_and_the_stage_has_ended(seen, staged):
    @staged("preprocess")
    def fail():
        raise KeyError("its own")

    with pytest.raises(KeyError):
        fail()
    assert points(seen) == ["stage_begin", "stage_end"]


def test_a_method_is_a_stage_too(seen, staged):
    class Encoder:
        @staged("audio_encode")
        def encode(self, sound):
            return self, sound

    encoder = Encoder()
    assert encoder.encode(1) == (encoder, 1)
    assert points(seen) == ["stage_begin", "stage_end"]


def test_a_coroutine_is_a_span_of_the_request_it_was_called_for(marks, seen, staged):
    @staged("queue")
    async def admit(turns):
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    async def serve(rid, turns):
        with marks.request(rid):
            return await admit(turns)

    async def both():
        return await asyncio.gather(serve("r-1", 3), serve("r-2", 1))

    assert inspect.iscoroutinefunction(admit)
    assert asyncio.run(both()) == [3, 1]
    ended = [mark[2] for mark in seen.marks if mark[0] == "span_end"]
    assert ended == [marks.request_hash("r-2"), marks.request_hash("r-1")]
    assert not [point for point in points(seen) if point.startswith("stage")]


def test_a_generator_holds_the_thread_only_while_its_body_runs(marks, seen, staged):
    @staged("llm_decode", modality="text")
    def decode(count):
        yield from range(count)

    with marks.request("r-1"):
        tokens = decode(2)
        assert points(seen) == ["request_begin"]
        next(tokens)
        assert points(seen)[1:] == ["span_begin", "stage_begin", "stage_end"]
        assert list(tokens) == [1]
    assert points(seen)[4:-1] == ["stage_begin", "stage_end"] * 2 + ["span_end"]
    assert {mark[2] for mark in seen.marks if mark[0].startswith("stage")} == {0}


def test_a_generator_takes_sends_throws_closes_and_returns_as_before(seen, staged):
    closed = []

    @staged("other")
    def body():
        try:
            got = yield 1
            try:
                yield got
            except ValueError as error:
                yield str(error)
            return "end"
        finally:
            closed.append(True)

    running = body()
    assert [next(running), running.send("sent"), running.throw(ValueError("thrown"))] == [1, "sent", "thrown"]
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value == "end"
    left = body()
    next(left)
    left.close()
    assert closed == [True, True]
    assert points(seen).count("span_begin") == points(seen).count("span_end") == 2


def test_an_async_generator_is_one_span_and_may_be_left_early(seen, staged):
    closed = []

    @staged("llm_decode")
    async def stream(count):
        try:
            for token in range(count):
                await asyncio.sleep(0)
                yield token
        finally:
            closed.append(True)

    async def read(limit):
        tokens, source = [], stream(5)
        async for token in source:
            tokens.append(token)
            if len(tokens) == limit:
                break
        await source.aclose()
        return tokens

    assert inspect.isasyncgenfunction(stream)
    assert asyncio.run(read(9)) == [0, 1, 2, 3, 4]
    assert asyncio.run(read(2)) == [0, 1]
    assert points(seen) == ["span_begin", "span_end"] * 2
    assert closed == [True, True]


def test_nonsense_is_no_reason_to_raise(seen, staged):
    @staged(None, modality=3.5, tokens="many", request=object())
    def work():
        return 1

    assert work() == 1
    assert points(seen) == ["stage_begin", "stage_end"]
