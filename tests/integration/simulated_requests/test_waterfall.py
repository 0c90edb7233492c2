# SPDX-License-Identifier: Apache-2.0
"""Waterfalls of the simulated server's requests, by the real agent behind real probes, against the truth."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from click.testing import CliRunner
from tests.integration.conftest import wait_until
from tests.integration.simulated_requests.conftest import ENOUGH, MIN_SAMPLES, Ran
from tests.integration.whole_agent import WholeAgent

from hotstage.api.schemas import schema_of
from hotstage.api.top_types import Top
from hotstage.cli.requests import requests as requests_command

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

SAME_SECONDS = 0.001
"""The truth reads its clock beside the mark: apart by microseconds, unless its thread loses the CPU."""

OWN_SERVER = """
import sys, time
import hotstage_marks as marks

for line in sys.stdin:
    request = marks.request_begin(line.strip(), endpoint="/v1/own", model="toy")
    with marks.stage("lora_apply", modality="text", lora_rank=16, lora_module="q_proj", request=request):
        time.sleep(0.02)
    with marks.stage("rerank", modality="text", request=request):
        time.sleep(0.03)
    for tokens in range(1, 6):
        time.sleep(0.01)
        request.tokens(tokens)
    request.end("ok", output_tokens=5)
"""
"""A server with a stage of its own and an adapter, which tells of each token and marks no decoding."""

Document = dict[str, Any]


class Told:
    """One run: the waterfall of every finished request, and the truth by request."""

    def __init__(self, agent: WholeAgent, truth: Document, wall_offset_ns: int) -> None:
        self.agent, self.wall_offset_ns = agent, wall_offset_ns
        self.truth: dict[str, dict[str, Document]] = defaultdict(dict)
        for span in truth["stages"]:
            self.truth[span["request"]][span["stage"]] = span
        listed = self.get("/v1/requests?outcome=ok")["requests"]
        self.waterfalls = {row["id"]: self.get(f"/v1/requests/{quote(row['id'])}") for row in listed}

    def get(self, path: str) -> Document:
        answer = self.agent.get(path)
        assert answer is not None and answer[0] == 200, (path, answer)
        body: Document = json.loads(answer[1])
        return body


@pytest.fixture(scope="module")
def told(ran: Ran) -> Told:
    return Told(ran.agent, ran.truth, ran.wall_offset_ns)


def test_stages_are_the_truths_to_a_millisecond(told: Told):
    assert set(told.waterfalls) == set(told.truth)
    apart = []
    for request, body in told.waterfalls.items():
        marked = {each["name"]: each for each in body["segments"] if each["placement"] != "gap"}
        true = told.truth[request]
        assert set(marked) == set(true)
        for name, each in marked.items():
            assert (each["placement"], each["runs"], each["is_open"]) == ("exact", 1, False)
            assert each["modality"] == true[name]["modality"]
            began_ns = body["request"]["started_at_ns"] + each["offset_seconds"] * 1e9
            apart.append(abs(began_ns - told.wall_offset_ns - true[name]["began_ns"]) / 1e9)
            took = (true[name]["ended_ns"] - true[name]["began_ns"]) / 1e9
            apart.append(abs(each["duration_seconds"] - took))
    apart.sort()
    assert len(apart) >= 8 * ENOUGH
    assert apart[math.ceil(0.95 * len(apart)) - 1] <= SAME_SECONDS, apart[-20:]
    assert apart[-1] <= 0.1, apart[-20:]


def test_segments_add_up_to_the_duration_and_begin_one_after_the_other(told: Told):
    for body in told.waterfalls.values():
        segments, request = body["segments"], body["request"]
        decided = sum(each["critical_seconds"] for each in segments)
        assert decided == pytest.approx(request["duration_seconds"], abs=1e-6)
        offsets = [each["offset_seconds"] for each in segments]
        assert offsets == sorted(offsets)
        assert sum(each["decides_end"] for each in segments) == 1
        # The simulated server does one thing at a time for a request: a segment ends where the next begins.
        for one, following in pairwise(segments):
            end = one["offset_seconds"] + one["duration_seconds"]
            assert following["offset_seconds"] == pytest.approx(end, abs=2e-6), (one, following)
        waits = {each["name"] for each in segments if each["kind"] == "wait"}
        assert waits <= {"queue", "delivery", "unmarked"}


def test_first_tokens_are_where_decode_began_and_their_parts_add_up(told: Told):
    for request, body in told.waterfalls.items():
        row, true = body["request"], told.truth[request]
        if "llm_decode" not in true:
            assert row["ttft_seconds"] is None
            continue
        assert row["ttft_basis"] in ("decode_begin", "tokens_mark")
        early = sum(each["before_first_token_seconds"] for each in body["segments"])
        assert early == pytest.approx(row["ttft_seconds"], abs=1e-6)
        assert 0 < row["ttft_seconds"] < row["duration_seconds"]
        if row["output_tokens"] >= 2:
            decode = (true["llm_decode"]["ended_ns"] - true["llm_decode"]["began_ns"]) / 1e9
            assert 0 < row["itl_seconds"] <= 1.05 * decode / (row["output_tokens"] - 1) + SAME_SECONDS
    table = told.get("/v1/latency")
    rows = [body["request"] for body in told.waterfalls.values()]
    for each in (table["total"], *table["modalities"]):
        own = sorted(
            row["ttft_seconds"]
            for row in rows
            if each["modality"] in ("all", row["modality"]) and row["ttft_seconds"] is not None
        )
        assert each["ttft_samples"] == len(own)
        if len(own) >= MIN_SAMPLES:
            assert each["ttft_p95_seconds"] == pytest.approx(own[math.ceil(0.95 * len(own)) - 1], rel=1e-5)
        if own:
            assert sum(part["share"] for part in each["parts"]) == pytest.approx(1.0)
    # A frame is of its second, the table of now: requests leave the last minute in between.
    until = time.monotonic() + 10.0
    while (compared := columns_and_table(told))[0] != compared[1]:
        assert time.monotonic() < until, compared
        time.sleep(0.3)


TOKEN_COLUMNS = ("ttft_samples", "ttft_p95_seconds", "itl_p50_seconds")


def columns_and_table(told: Told) -> tuple[dict[str, list[float | None]], dict[str, list[float | None]]]:
    """The figures of first tokens by modality, as the newest frame has them and as the table does now."""
    frames = told.get(f"/v1/frames?columns={','.join(TOKEN_COLUMNS)}&seconds=3")["frames"]
    table = told.get("/v1/latency")["modalities"]
    columns = {
        each["modality"]: [each["values"].get(name) for name in TOKEN_COLUMNS]
        for each in frames[-1]["entities"]
        if each["kind"] == "modality" and each["values"].get("ttft_samples")
    }
    return columns, {each["modality"]: [each[name] for name in TOKEN_COLUMNS] for each in table}


def test_stages_that_use_the_gpu_tell_what_their_threads_waited_for(told: Told):
    seen = defaultdict(list)
    for body in told.waterfalls.values():
        for each in body["segments"]:
            if each["parts"] is not None:
                seen[each["name"]].append(each)
    assert {"vision_encode", "llm_prefill", "tokenize"} <= set(seen)
    for name, segments in seen.items():
        for each in segments:
            waited = [each["parts"][f"{kind}_seconds"] for kind in ("sync", "copy", "alloc")]
            longest = each["duration_seconds"] + SAME_SECONDS
            assert all(value is None or 0 <= value <= longest for value in waited)
        synced = sum(each["parts"]["sync_seconds"] or 0.0 for each in segments)
        took = sum(each["duration_seconds"] for each in segments)
        # Workers on the GPU spend most of a stage waiting for it, those on the CPU none of it.
        if name in ("vision_encode", "llm_prefill"):
            assert synced > 0.3 * took, name
        if name == "tokenize":
            assert synced == 0
    components = {(row["stage"], row["source"]): row for row in told.get("/v1/components")["components"]}
    assert components["sync", "kernel"]["count"] > 0
    assert components["queue", "gap"]["count"] > 0


def test_the_command_shows_the_slowest_request_and_its_parts(told: Told):
    address = f"http://127.0.0.1:{told.agent.port}"
    slowest = max(told.waterfalls.values(), key=lambda body: body["request"]["duration_seconds"])["request"]
    listed = CliRunner().invoke(requests_command, ["--slow", "--limit", "1", "--agent", address])
    assert listed.exit_code == 0, listed.output
    assert listed.output.splitlines()[1].split("\t")[1] == slowest["id"]
    shown = CliRunner().invoke(requests_command, [slowest["id"], "--agent", address])
    assert shown.exit_code == 0, shown.output
    assert "llm_prefill" in shown.output


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path / "server.py"
    program.write_text(OWN_SERVER)
    server = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, text=True)
    yield server
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(10) == 0


def test_a_servers_own_stage_its_adapter_and_its_tokens_are_told_by_their_names(
    told: Told, own_server: subprocess.Popen[str]
) -> None:
    def attached() -> bool:
        processes = told.get("/v1/coverage")["processes"]
        return any(
            (process["pid"], library["kind"], library["state"]) == (own_server.pid, "marks", "attached")
            for process in processes
            for library in process["libraries"]
        )

    wait_until(attached, "the marks of the server with a stage of its own")
    assert own_server.stdin is not None
    for number in range(3):
        own_server.stdin.write(f"own-{number}\n")
    own_server.stdin.flush()
    wait_until(lambda: len(told.get("/v1/requests?stage=rerank")["requests"]) == 3, "three requests")
    body = told.get("/v1/requests/own-2")
    request, segments = body["request"], {each["name"]: each for each in body["segments"]}
    assert (request["lora_rank"], request["lora_module"], request["output_tokens"]) == (16, "q_proj", 5)
    assert segments["rerank"]["duration_seconds"] == pytest.approx(0.03, abs=0.02)
    assert segments["rerank"]["parts"]["host_seconds"] == pytest.approx(
        segments["rerank"]["duration_seconds"], abs=0.01
    )
    assert request["ttft_basis"] == "tokens_mark"
    assert request["ttft_seconds"] == pytest.approx(0.06, abs=0.03)
    assert request["itl_seconds"] == pytest.approx(0.01, abs=0.005)
    components = told.get("/v1/components")["components"]
    rows = {(row["stage"], row["lora_rank"], row["lora_module"]): row["count"] for row in components}
    assert rows["rerank", None, None] == 3
    assert rows["lora_apply", 16, "q_proj"] == 3


def test_top_tells_of_the_same_processes_and_stages(told):
    command = [sys.executable, "-m", "hotstage", "top", "--json", "--interval", "1"]
    address = ["--agent", f"http://127.0.0.1:{told.agent.port}"]
    done = subprocess.run([*command, *address], check=True, capture_output=True, text=True, timeout=30)
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema_of(Top)).validate(document)
    covered = told.get("/v1/coverage")["processes"]
    assert {row["pid"] for row in document["processes"]} >= {each["pid"] for each in covered}
    assert document["host"]["rung"] in ("S", "M", "P") and document["host"]["probes"] == "on"
    assert document["losses"] == [] and 0 < document["host"]["agent_cpu_ratio"] < 1
    prefills = [row for row in document["stages"] if row["stage"] == "llm_prefill"]
    assert prefills and all(row["p95_seconds"] > 0 for row in prefills)
