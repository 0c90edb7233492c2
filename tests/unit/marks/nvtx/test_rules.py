# SPDX-License-Identifier: Apache-2.0
"""The shipped table by the names that engines really emit, and a user's own file before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotstage.stages.stage import Modality, Stage
from hotstage_marks.nvtx import RULES_VARIABLE, SHIPPED_RULES, explain, stage_word

EMITTED = [
    # vLLM: gpu_model_runner.py, scheduler.py, llm_engine.py
    ("", "gpu_model_runner: preprocess", "preprocess", "mixed"),
    ("", "gpu_model_runner: forward", "llm_decode", "mixed"),
    ("", "gpu_model_runner: sample", "sample", "text"),
    ("", "gpu_model_runner: eplb", "other", "mixed"),
    ("", "schedule: allocate_slots", "queue", "mixed"),
    ("", "llm_engine step: get_output", "queue", "mixed"),
    ("", "llm_engine step: process_outputs", "detokenize", "text"),
    # SGLang: scheduler.py
    ("", "scheduler.get_next_batch_to_run", "queue", "mixed"),
    ("", "scheduler.run_batch", "llm_decode", "mixed"),
    # TensorRT-LLM: py_executor.py, modeling_*.py
    ("TensorRT-LLM", "[Executor] _forward_step 17: 0 ctx reqs, 32 gen reqs", "llm_decode", "mixed"),
    (
        "TensorRT-LLM",
        "[Executor] _forward_step 18: 0 ctx reqs, 0 ctx tokens, 8 gen",
        "llm_decode",
        "mixed",
    ),
    ("TensorRT-LLM", "[Executor] _forward_step: 2 ctx reqs, 30 gen reqs", "llm_prefill", "mixed"),
    ("TensorRT-LLM", "_sample_async", "sample", "text"),
    ("TensorRT-LLM", "[Vision] preprocess", "preprocess", "image"),
    ("TensorRT-LLM", "[Vision] process", "vision_encode", "image"),
    ("TensorRT-LLM", "Qwen2VLInputProcessorBase forward()", "preprocess", "image"),
    ("TensorRT-LLM", "_prepare_inputs", None, None),
    # Triton: core, back ends
    ("", "DynamicBatchScheduler 3", "queue", "mixed"),
    ("", "CopyBuffer", "preprocess", "mixed"),
    ("", "Execute clip_0_gpu1", None, None),
    # PyTorch: emit_nvtx(), and what people write
    ("", "aten::upsample_nearest2d, seq = 17, sizes = [[1, 3]]", None, None),
    ("", "MulBackward0, seq = 3", None, None),
    ("", "Prefill", "llm_prefill", "text"),
    ("", "decode_step 12", "llm_decode", "text"),
    ("app", "vision tower", "vision_encode", "image"),
    ("", "video_decode", "media_decode", "video"),
    ("", "resample", None, None),
    ("", "invite", None, None),
    ("", "forward", "llm_decode", "mixed"),
    # Libraries
    ("NCCL", "ncclAllReduce", None, None),
    ("CUDNN", "decode", None, None),
]


@pytest.mark.parametrize(("domain", "name", "stage", "modality"), EMITTED)
def test_a_name_that_is_really_emitted_is(domain: str, name: str, stage: str | None, modality: str | None):
    assert explain(domain, name)[1:3] == (stage, modality)


@pytest.mark.parametrize("stage", [stage.name for stage in Stage if stage is not Stage.other])
def test_every_stage_can_be_written_by_its_own_name(stage: str):
    assert explain("anybody", stage.upper()).stage == stage


def test_the_shipped_file_is_read_whole_and_names_only_what_there_is():
    lines = [line.split("#")[0] for line in SHIPPED_RULES.read_text().splitlines()]
    rules = [line for line in lines if line.strip()]
    stages = {line.rsplit('"', 1)[1].split()[0] for line in rules if line.startswith("stage")}
    modalities = {line.rsplit('"', 1)[1].split()[1] for line in rules if line.startswith("stage")}
    assert stages <= {stage.name for stage in Stage}
    assert modalities <= {modality.name for modality in Modality}
    assert 60 < len(rules) < 200


def asked(rules: Path | str, domain: str, name: str) -> tuple[str, str]:
    """What `--explain` prints, and what is said on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "hotstage_marks.nvtx", "--explain", domain, name],
        env={**os.environ, RULES_VARIABLE: str(rules)},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def test_a_users_rules_come_first_and_may_name_a_library(tmp_path: Path):
    rules = tmp_path / "rules"
    rules.write_text(
        'stage - exact "Execute clip" vision_encode image\r\n'
        'stage NCCL prefix "ncclAll" kv_transfer unknown\n'
        'ignore - word "prefill"\n'
        'stage - prefix "job " llm_decode text id'
    )
    assert asked(rules, "", "execute CLIP") == ("stage vision_encode, modality image", "")
    assert asked(rules, "NCCL", "ncclAllReduce")[0] == "stage kv_transfer, modality unknown"
    assert asked(rules, "NCCL", "decode")[0] == "no stage"
    assert asked(rules, "", "my prefill")[0] == "no stage"
    assert asked(rules, "app", "my prefill")[0] == "stage llm_prefill, modality text"
    assert asked(rules, "", "job 7")[0].endswith("of the request that the name ends in")
    assert asked(rules, "hotstage", "request 7")[0] == "a request, whose id the name ends in"


def test_a_line_that_makes_no_sense_is_named_and_left_out(tmp_path: Path):
    rules = tmp_path / "rules"
    rules.write_text(
        "stage - exact\n"
        'stage - like "x" llm_decode text\n'
        'stage - exact "x" thinking text\n'
        'stage - suffix "x" llm_decode text id\n'
        'stage - exact "not closed\n'
        'stage - exact "x" llm_decode text\n'
        "wish - exact x\n"
    )
    said, complaints = asked(rules, "", "x")
    assert said == "stage llm_decode, modality text"
    assert [line.split(":")[2] for line in complaints.splitlines()] == ["1", "2", "3", "4", "5"], (
        "five at most"
    )


@pytest.mark.parametrize("content", [None, b"#" * 70_000, b"\0\xff" * 500, b'"' * 5000])
def test_a_file_that_cannot_be_used_leaves_the_shipped_rules(tmp_path: Path, content: bytes | None):
    rules = tmp_path / "rules"
    if content is not None:
        rules.write_bytes(content)
    said, _ = asked(rules, "", "llm_decode")
    assert said == "stage llm_decode, modality text"


@pytest.mark.parametrize(("name", "word"), [("vision_encode", 8 | 1 << 8), ("no rule knows this", None)])
def test_a_stages_word_is_what_a_probe_point_is_told(name: str, word: int | None):
    assert stage_word(name) == word
