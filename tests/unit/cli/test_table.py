# SPDX-License-Identifier: Apache-2.0
"""Tables on real terminals of several widths: nothing is lost, no line is too wide."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.cells import cell_len
from support.answers import answering

from hotstage.cli.main import cli
from hotstage.cli.table import is_whole
from hotstage.cli.terminal import print_table

WIDTHS = (80, 120, 160)
ENTITY = {"stage": "vision_encode", "modality": "image", "instance": "simhost-instance-1"}
SUMMARY = (
    "vision_encode of images takes 412 ms at p95, 10.3 times its usual 40 ms, on GPU "
    "GPU-8f1c0d3e-77aa-4b5e-9a51-0d5f1c2b3a4d; queue and prefill are as usual"
)
REQUEST_ID = "chatcmpl-7f0b5a1e-94b1-4c0e-8d3a-5b1f0e9c7d21"
AT, EARLIER = "2026-11-30T02:19:54.123Z", "2025-01-02T23:59:59.999Z"
BREAKER = "stage:vision_encode:image"
WINDOW = "win-01JDXR2M7Q8F3Z0N5T9V6K4C1B"
STAGES = ("media_fetch", "media_decode", "vision_encode", "cross_modal_align", "llm_prefill", "llm_decode")


def _segment(name: str, kind: str, offset: float, took: float) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "modality": "image" if kind == "stage" else None,
        "is_open": False,
        "offset_seconds": offset,
        "until_seconds": offset + took,
        "last_begin_seconds": offset + took / 2,
        "duration_seconds": took,
        "critical_seconds": took,
        "placement": "first_begin",
        "runs": 12,
        "parts": {
            "run_queue_seconds": 0.0000374,
            "sync_seconds": 0.0123,
            "copy_seconds": 0.00211,
            "alloc_seconds": 0.000456,
        },
    }


LISTED = {
    "seq": 31_415,
    "id": REQUEST_ID,
    "endpoint": "/v1/chat/completions",
    "modality": "image",
    "outcome": "cancelled",
    "ended_at": EARLIER,
    "duration_seconds": 3725.0,
    "ttft_seconds": 0.0000374,
    "itl_seconds": 0.0123,
    "output_tokens": 2048,
    "slowest": {"name": "cross_modal_align", "share": 0.75},
    "stages": [],
}
DETAILED = {
    "request": {**LISTED, "ttft_basis": "decode_begin"},
    "segments": [
        _segment(name, "stage" if at % 2 else "wait", 600.0 * at, 600.0) for at, name in enumerate(STAGES)
    ],
}
CLASS = {
    "fingerprint": "multi_image_video",
    "size": "up_to_128K",
    "endpoint": "/v1/chat/completions",
    "requests": 123_456,
    "rate": 1234.5,
    "mean_seconds": 0.9996,
    "p50_seconds": 12.3,
    "p95_seconds": 1234.5,
    "p99_seconds": 3725.0,
    "p99_target_seconds": 0.8,
    "within_target_ratio": 0.123,
    "token_equivalent_ms": 87.5,
    "slo_baseline_seconds": 0.5,
    "slo_penalty_ms": 5850.0,
}
COMPONENT = {
    "stage": "cross_modal_align",
    "lora_rank": 64,
    "lora_module": "gate_up_proj",
    "kind": "stage",
    "source": "mark",
    "count": 123_456,
    "mean_seconds": 0.9996,
    "p95_seconds": 1234.5,
    "variance": 0.0000123,
    "share": 0.123,
}
LATENCY = {
    "modality": "image",
    "requests": 123_456,
    **{f"{name}_seconds": 0.9996 for name in ("ttft_p50", "ttft_p95", "itl_p50", "itl_p95")},
    "slowest": "cross_modal_align",
    "parts": [
        {
            "name": "queue",
            "kind": "wait",
            "source": source,
            "count": 9,
            "mean_seconds": 0.0000374,
            "p95_seconds": 0.5,
            "share": 0.5,
        }
        for source in ("mark", "gap")
    ],
}
COVERAGE = {
    "loader": "libbpf",
    "rung": "S",
    "attached": 210,
    "calls": {"counted": 123_456, "open": 2, "lost": 0},
    "processes": [
        {
            "pid": 1_234_567,
            "name": "python3.11-serve",
            "libraries": [
                {
                    "kind": "libcudart",
                    "state": "attached",
                    "attached": 88,
                    "emulated": 4,
                    "path": "/opt/venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12",
                }
            ],
        }
    ],
    "missed": [
        {"symbol": "cuMemcpyBatchAsync", "reason": "not exported by this version", "library": "libcuda"}
    ],
    "custom": [],
    "driver": {
        "state": "watching",
        "reason": None,
        "remedy": None,
        "queue_submit": {"through": "cuLaunch*", "is_derived": True, "count": 5, "reason": "derived"},
        "events": [
            {
                "event": "dma_fence:dma_fence_wait_start",
                "state": "attached",
                "hits": 1_234_567,
                "reason": None,
                "gives": "who begins to wait for a GPU in the kernel",
            }
        ],
        "timelines": None,
        "ioctls": None,
        "oom_kills": None,
    },
    "losses": {"lost_own_stages": 12},
}
SNAPSHOT = {"id": "snap-01JDXR2M7Q8F3Z0N5T9V6K4C1B", "taken_at": AT, "requests": 2000, "threads": 64}
STAGE = {
    "stage": "cross_modal_align",
    "modality": "image",
    "requests": 123_456,
    "inflight": 512,
    "oldest_age_seconds": 3725.0,
    "rate": 1234.5,
    "p50_seconds": 0.0000374,
    "p95_seconds": 1234.5,
    "p99_seconds": 99.9,
    "windows_open": ["shared_stream", "stage_latency"],
}
OVERRIDE = {"until_ns": 600 * 10**9, "actor": "uid 1000", "since": AT, "reason": "the encoder is being moved"}
STATE = {
    "name": BREAKER,
    "state": "half_open",
    "own_state": "closed",
    "enforced": True,
    "since": EARLIER,
    "stale": False,
    "override": None,
    "reason": SUMMARY,
}
MOVE = {"at": EARLIER, "breaker": BREAKER, "from": "half_open", "to": "closed", "window_id": WINDOW}
PLANNED = {
    "id": REQUEST_ID,
    "instance": "simhost-instance-1",
    "last_finished_stage": "cross_modal_align",
    "open_stages": ["llm_prefill"],
    "decision": "resume",
    "resume_at": "llm_prefill",
    "redo": list(STAGES),
}
ANSWERS: dict[str, Any] = {
    "/v1/breakers": {"at_ns": 0, "breakers": [STATE, {**STATE, "override": OVERRIDE}]},
    "/v1/transitions": {"transitions": [{**MOVE, "reason": SUMMARY}]},
    "/v1/windows": {
        "windows": [
            {
                "id": WINDOW,
                "severity": "critical",
                "kind": "alive_but_hung",
                "opened_at": EARLIER,
                "closed_at": closed,
                "entity": ENTITY,
                "cause": {"summary": SUMMARY},
                "score": 3.5,
                "peak_at": EARLIER,
                "figures_at": EARLIER,
            }
            for closed in (EARLIER, None)
        ]
    },
    "/v1/requests": {"requests": [LISTED]},
    f"/v1/requests/{REQUEST_ID}": DETAILED,
    "/v1/latency": {"total": {**LATENCY, "modality": "all"}, "modalities": [LATENCY]},
    "/v1/classes": {"fingerprints": [CLASS], "classes": [CLASS], "endpoints": [CLASS]},
    "/v1/components": {"request": COMPONENT, "components": [COMPONENT]},
    "/v1/coverage": COVERAGE,
    "/v1/stages": {"unattributed_ratio": 0.012, "stages": [STAGE]},
    "/v1/snapshots": {"snapshots": [{**SNAPSHOT, "causes": [{"kind": "window", "name": WINDOW}]}]},
    "/v1/snapshot/plan": {"policy": {"vision_encode": True}, "requests": [PLANNED]},
}
VERBS = (
    "breakers",
    "breakers history",
    "windows",
    "requests",
    f"requests {REQUEST_ID}",
    "requests --first-token",
    "classes",
    "classes --components",
    "coverage",
    "stages",
    "snapshot list",
    "snapshot plan",
)


@pytest.fixture(scope="module")
def agent():
    with answering(lambda path: ANSWERS[urlsplit(path).path]) as address:
        yield address


def shown(monkeypatch, width: int, action: Callable[[], object]) -> list[str]:
    """The lines that a pseudo-terminal of this width is sent, without their style."""
    near, far = os.openpty()
    sent: list[bytes] = []

    def receive() -> None:  # beside the writer: a terminal's buffer is short
        with os.fdopen(near, "rb", buffering=0) as side, contextlib.suppress(OSError):
            while part := side.read(1 << 16):  # until EIO: the other side is closed
                sent.append(part)

    reader = threading.Thread(target=receive)
    reader.start()
    with os.fdopen(far, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        patched.setenv("COLUMNS", str(width))
        patched.setenv("TERM", "xterm")
        action()
    reader.join(10)
    return re.sub("\x1b\\[[0-9;]*m", "", b"".join(sent).decode()).replace("\r", "").splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_reading_verbs_table_loses_nothing_at_any_width(agent, monkeypatch, capsys, verb, width):
    words = [*verb.split(), "--agent", agent]
    cli.main(words, standalone_mode=False)
    piped = capsys.readouterr().out.splitlines()
    lines = shown(monkeypatch, width, lambda: cli.main(words, standalone_mode=False))
    tables = [line.split("\t") for line in piped if "\t" in line]
    assert tables
    at_once, everything = "\n".join(lines), "".join("".join(lines).split())
    for value in (cell for row in tables for cell in row):
        if is_whole(value) and cell_len(value) <= 60:
            assert value in at_once, f"{value} is cut"
        for word in value.split():
            assert word in everything or cell_len(word) > 40, f"{word} of {value} is lost"
    table_lines = [line for line in lines if line.rstrip() not in piped]
    assert max(cell_len(line.rstrip()) for line in table_lines) <= width


def test_numbers_stand_to_the_right_under_their_name(monkeypatch):
    lines = shown(
        monkeypatch, 80, lambda: print_table(("name", "took"), [("a", "1 s"), ("b", "12.3 ms")], empty="")
    )
    assert [line.rstrip() for line in lines] == ["name     took", "a         1 s", "b     12.3 ms"]


def test_long_text_folds_in_its_own_column(monkeypatch):
    rows = [("w-1", "one two three four five six seven eight nine ten", "end")]
    lines = shown(monkeypatch, 40, lambda: print_table(("id", "cause", "last"), rows, empty=""))
    assert lines[1].split()[0] == "w-1"
    assert lines[1].split()[-1] == "end"
    assert len(lines) == 3
    assert all(line.startswith("    ") for line in lines[2:])


def test_what_fits_beside_nothing_becomes_a_record(monkeypatch):
    names, row = [f"column-{at}" for at in range(12)], [f"value-{at}" for at in range(12)]
    lines = shown(monkeypatch, 60, lambda: print_table(names, [row], empty=""))
    assert lines[0].strip() == "column-0 value-0"
    assert lines[1].startswith("  column-1 value-1   column-2 value-2")
    assert all(cell_len(line) <= 60 for line in lines)


def test_wide_characters_count_twice(monkeypatch):
    rows = [("漢字" * 15, "漢字" * 15)]
    lines = shown(monkeypatch, 80, lambda: print_table(("request", "last"), rows, empty=""))
    assert max(cell_len(line.rstrip()) for line in lines) <= 80
    assert "漢字" * 15 in "\n".join(lines)


@pytest.mark.parametrize("columns", [("id", "waited for"), [f"column-{at}" for at in range(12)]])
@pytest.mark.parametrize("width", range(40, 80))
def test_a_number_in_a_text_stays_with_its_unit(monkeypatch, width, columns):
    text = "run queue 37.4 µs, sync 12.3 ms, copy 2 s and 45 % of 17 min, 12 MiB"
    rows = [(*["value"] * (len(columns) - 1), text)]
    lines = shown(monkeypatch, width, lambda: print_table(columns, rows, empty=""))
    for figure in ("37.4 µs", "12.3 ms", "2 s", "45 %", "17 min"):
        assert any(figure in line for line in lines), figure
    assert "\ue000" not in "".join(lines)
