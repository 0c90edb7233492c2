# SPDX-License-Identifier: Apache-2.0
"""The C library: words, the thread's stack, requests."""

from __future__ import annotations

import ctypes
import threading

VISION_IMAGE = 8 | 1 << 8
PREFILL_TEXT = 12 | 0 << 8
NONE = 255 | 5 << 8


class Scope(ctypes.Structure):
    _fields_ = (
        ("word", ctypes.c_uint64),
        ("request_hash", ctypes.c_uint64),
        ("tokens", ctypes.c_uint64),
        ("sequence", ctypes.c_uint64),
        ("owner", ctypes.c_void_p),
        ("depth", ctypes.c_uint32),
        ("is_open", ctypes.c_uint32),
    )


def begin(library, stage, modality, request=0, tokens=0, kind="stage"):
    scope = Scope()
    values = (ctypes.c_uint64(value) for value in (stage, modality, request, tokens))
    getattr(library, f"hotstage_{kind}_begin")(ctypes.byref(scope), *values)
    return scope


def end(library, scope, kind="stage"):
    getattr(library, f"hotstage_{kind}_end")(ctypes.byref(scope))


def test_an_inner_stage_restores_the_outer_one(seen):
    outer = begin(seen.library, 8, 1, request=42, tokens=7)
    inner = begin(seen.library, 12, 0, request=43, tokens=9)
    end(seen.library, inner)
    end(seen.library, outer)
    assert seen.marks == [
        ("stage_begin", VISION_IMAGE, 42, 7),
        ("stage_begin", PREFILL_TEXT, 43, 9),
        ("stage_end", PREFILL_TEXT, 43, VISION_IMAGE, 9),
        ("stage_end", VISION_IMAGE, 42, NONE, 7),
    ]


def test_an_outer_end_closes_what_was_left_open_above_it(seen):
    outer = begin(seen.library, 8, 1)
    inner = begin(seen.library, 12, 0)
    end(seen.library, outer)
    end(seen.library, inner)
    assert [mark[0] for mark in seen.marks] == ["stage_begin", "stage_begin", "stage_end", "stage_end"]
    assert seen.marks[2][3] == VISION_IMAGE
    assert seen.marks[3][3] == NONE


def test_an_end_that_came_too_late_does_not_close_the_next_stage_at_its_depth(seen):
    outer = begin(seen.library, 8, 1)
    late = begin(seen.library, 12, 0)
    end(seen.library, outer)
    lower = begin(seen.library, 9, 2)
    following = begin(seen.library, 10, 3)
    count = len(seen.marks)
    end(seen.library, late)
    assert len(seen.marks) == count
    end(seen.library, following)
    assert seen.marks[-1][:2] == ("stage_end", 10 | 3 << 8)
    end(seen.library, lower)


def test_a_second_end_does_nothing(seen):
    scope = begin(seen.library, 8, 1)
    end(seen.library, scope)
    end(seen.library, scope)
    assert len(seen.marks) == 2


def test_stages_deeper_than_the_stack_touch_the_request_only(seen):
    results = []

    def nest():  # a thread of its own: a fresh stack
        scopes = [begin(seen.library, 8, 1, request=5) for _ in range(20)]
        results.extend(mark[0] for mark in seen.marks)
        for scope in reversed(scopes):
            end(seen.library, scope)

    thread = threading.Thread(target=nest)
    thread.start()
    thread.join()
    assert results == ["stage_begin"] * 16 + ["span_begin"] * 4
    ends = [mark[0] for mark in seen.marks[20:]]
    assert ends == ["span_end"] * 4 + ["stage_end"] * 16
    assert seen.marks[-1][3] == NONE


def test_a_stage_ended_on_another_thread_closes_the_request_and_leaves_both_threads_alone(seen):
    scopes = []
    thread = threading.Thread(target=lambda: scopes.append(begin(seen.library, 8, 1, request=5, tokens=3)))
    thread.start()
    thread.join()
    end(seen.library, scopes[0])
    assert seen.marks == [("stage_begin", VISION_IMAGE, 5, 3), ("span_end", VISION_IMAGE, 5, 3)]


def test_unknown_stages_count_as_other_and_unknown_modalities_as_unknown(seen):
    end(seen.library, begin(seen.library, 999, 77, kind="span"), kind="span")
    assert [mark[:2] for mark in seen.marks] == [("span_begin", 17 | 5 << 8), ("span_end", 17 | 5 << 8)]


def test_the_hash_is_fnv_1a_with_its_published_values(seen):
    hash_of = seen.library.hotstage_request_hash
    hash_of.restype = ctypes.c_uint64
    assert hash_of(b"a") == 0xAF63DC4C8601EC8C
    assert hash_of(b"foobar") == 0x85944171F73967E8
    assert hash_of(b"") == 0
    assert hash_of(None) == 0


def test_a_request_carries_its_strings_bounded_and_cut_between_characters(seen):
    seen.library.hotstage_request_begin(
        "é".encode() * 40, b"/v1/encode", b"x" * 31 + "é".encode(), None, b"00-trace"
    )
    request = seen.request
    assert (request.version, request.size, ctypes.sizeof(request)) == (1, 256, 256)
    assert request.id.decode() == "é" * 31
    assert request.instance == b"x" * 31
    assert (request.endpoint, request.model, request.traceparent) == (b"/v1/encode", b"", b"00-trace")
    assert seen.marks == [("request_begin", request.request_hash)]


def test_marks_of_no_request_are_not_made(seen):
    seen.library.hotstage_request_begin(b"", None, None, None, None)
    seen.library.hotstage_request_end(ctypes.c_uint64(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
    seen.library.hotstage_tokens(ctypes.c_uint64(0), ctypes.c_uint64(4))
    assert seen.marks == []
