# SPDX-License-Identifier: Apache-2.0
"""Stages and spans from Python."""

from __future__ import annotations

import ctypes
import platform

import pytest

from hotstage.stages.stage import Modality, Stage
from hotstage_marks import _native

NONE = 255 | 5 << 8
FIRST_OF_NOP = {"x86_64": 0x90, "aarch64": 0x1F}[platform.machine()]


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_of_the_pipeline_is_known_by_name_and_by_id(marks, seen, stage):
    for name in (stage.name, stage):
        with marks.span(name, modality=Modality.audio):
            pass
    assert {mark[1] for mark in seen.marks} == {stage | Modality.audio << 8}


@pytest.mark.parametrize("modality", Modality)
def test_every_modality_is_known_by_name(marks, seen, modality):
    marks.span("queue", modality=modality.name).begin()
    assert seen.marks[0][1] == Stage.queue | modality << 8


def test_a_stage_belongs_to_the_current_request(marks, seen):
    with marks.request("r-1") as request, marks.stage("vision_encode", modality="image", tokens=1024):
        pass
    word = Stage.vision_encode | Modality.image << 8
    assert seen.marks[1:3] == [
        ("stage_begin", word, request.hash, 1024),
        ("stage_end", word, request.hash, NONE, 1024),
    ]


def test_a_stage_outside_any_request_is_the_threads_alone(marks, seen):
    with marks.stage("llm_decode"):
        pass
    assert [mark[2] for mark in seen.marks] == [0, 0]


@pytest.mark.parametrize("by", ["id", "object"])
def test_a_span_may_name_its_request(marks, seen, by):
    request = marks.request("r-2")
    with marks.span("queue", request="r-2" if by == "id" else request):
        pass
    assert {mark[2] for mark in seen.marks} == {request.hash}


def test_tokens_may_be_set_until_the_end(marks, seen):
    with marks.stage("llm_prefill", tokens=1) as scope:
        scope.tokens = 77
    marks.span("queue").begin().end(tokens=5)
    assert seen.marks[1][4] == 77
    assert seen.marks[3][3] == 5


def test_a_stage_ends_when_its_body_raises_and_the_error_goes_on(marks, seen):
    with pytest.raises(KeyError), marks.stage("preprocess"):
        raise KeyError("server's own")
    assert [mark[0] for mark in seen.marks] == ["stage_begin", "stage_end"]


def test_a_scope_can_be_used_again_after_its_end(marks, seen):
    scope = marks.stage("tokenize")
    with scope:
        pass
    with scope:
        pass
    assert [mark[0] for mark in seen.marks] == ["stage_begin", "stage_end"] * 2


def test_a_span_may_begin_and_end_without_an_object(marks, seen):
    marks.span_begin("queue", modality="audio", request="r-3")
    marks.span_end("queue", modality="audio", tokens=7, request="r-3")
    marks.span_begin("queue", request="")
    word, request = Stage.queue | Modality.audio << 8, marks.request_hash("r-3")
    assert seen.marks == [("span_begin", word, request, 0), ("span_end", word, request, 7)]


def test_whoever_changes_the_first_byte_of_a_probe_point_is_a_watcher(marks):
    assert marks.is_watched() is True  # the recorder's are functions of their own
    point = ctypes.CDLL(_native.__file__).hotstage_mark_request_begin
    first = ctypes.c_ubyte.from_address(ctypes.cast(point, ctypes.c_void_p).value).value
    assert _native.is_watched() is (first != FIRST_OF_NOP)  # an agent may run on this host
