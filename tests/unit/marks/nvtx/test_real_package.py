# SPDX-License-Identifier: Apache-2.0
"""Untouched programs with PyPI's `nvtx`, under the shipped injection: what a watcher would see of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.marks.nvtx.conftest import RECORDING

from hotstage_marks.nvtx import VARIABLE

pytest.importorskip("nvtx", reason="the real package is what this is about: pip install nvtx")

TELL = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
count = ctypes.c_uint64.in_dll(library, "recorded_count").value
marks = (ctypes.c_uint64 * 5 * 4096).in_dll(library, "recorded")
print(json.dumps([list(mark) for mark in marks[:count]]))
"""
BEGIN, END, SPAN, SPAN_END, REQUEST, REQUEST_END = 1, 2, 3, 4, 5, 6


def marks_of(program: str, folder: Path) -> list[list[int]]:
    done = subprocess.run(
        [sys.executable, "-c", program + TELL, folder / RECORDING],
        env={**os.environ, VARIABLE: str(folder / "libhotstage_nvtx.so")},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [list(mark) for mark in json.loads(done.stdout)]


def test_annotations_decorators_and_pushes_are_stages(recording_folder: Path):
    program = """
import nvtx
@nvtx.annotate("vision_encode")
def encode(): pass
for _ in range(3):
    encode()
with nvtx.annotate("gpu_model_runner: forward", color="blue"):
    with nvtx.annotate("layer 3", domain="model"):
        with nvtx.annotate(message="sample", domain="model", category="x", payload=17):
            pass
nvtx.push_range("Prefill chunk 4")
nvtx.pop_range()
nvtx.mark("decode")
nvtx.push_range("decode", domain="NCCL")
nvtx.pop_range(domain="NCCL")
"""
    assert [(point, word & 0xFF) for point, word, *_ in marks_of(program, recording_folder)] == [
        *[(BEGIN, 8), (END, 8)] * 3,
        (BEGIN, 13),
        (BEGIN, 15),
        (END, 15),
        (END, 13),
        (BEGIN, 12),
        (END, 12),
    ]


def test_started_ranges_are_the_spans_of_their_request_across_threads(recording_folder: Path):
    program = """
import nvtx, threading
request = nvtx.start_range("request r-1", domain="hotstage")
queue = nvtx.start_range(message="queue r-1", domain="hotstage")
ending = threading.Thread(target=nvtx.end_range, args=(queue,))
ending.start(); ending.join()
domain = nvtx.get_domain("hotstage")
attributes = domain.get_event_attributes(message="llm_decode r-1")
decode = domain.start_range(attributes)
domain.end_range(decode)
nvtx.end_range(request)
"""
    marks = marks_of(program, recording_folder)
    assert [mark[0] for mark in marks] == [REQUEST, SPAN, SPAN_END, SPAN, SPAN_END, REQUEST_END]
    request = marks[0][1]
    assert [mark[2] for mark in marks if mark[0] in (SPAN, SPAN_END)] == [request] * 4
    assert [mark[1] & 0xFF for mark in marks[1:4]] == [5, 5, 13]
