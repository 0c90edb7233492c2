# SPDX-License-Identifier: Apache-2.0
"""`hotstage snapshot` against an agent's answers: what it shows, keeps in a file, compares and plans."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from click.testing import CliRunner
from support.answers import answering
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage, sample, thread

from hotstage.cli.snapshot import snapshot as command
from hotstage.config.snapshots import RecoveryConfig
from hotstage.errors import HotstageError
from hotstage.stages.recovery import recovery_plan
from hotstage.stages.snapshot import snapshot
from hotstage.stages.snapshot_types import Device, Snapshot

START = 50 * SECOND


@pytest.fixture
def taken(clock) -> Callable[[float], Snapshot]:
    """`taken(seconds)`: the same stuck request, so many seconds after its start."""

    def make(seconds: float) -> Snapshot:
        request = KernelRequest(1, at_ns=START).begin(Stage.preprocess, START, modality=Modality.image)
        request.end(Stage.preprocess, START + MS)
        request.begin(Stage.vision_encode, START + 2 * MS, modality=Modality.image)
        request.row["updated_ns"] = START + 2 * MS
        worker = thread(7, call=64, since_ns=START + 3 * MS, stage=Stage.vision_encode)
        worker["request_hash"], worker["device"] = 1, 3
        found = sample(START + round(seconds * SECOND), requests=[request], threads=[worker], unclean=2)
        return snapshot(found, clock, {64: "cuEventSynchronize"})

    return make


@pytest.fixture
def agent(taken) -> Iterator[str]:
    """The address of a server that answers as an agent does."""
    live = msgspec.to_builtins(taken(9)) | {"host": "gpu-7", "tick": 1}
    stored = {"id": "s-1", "window_id": "w-1", "snapshot": msgspec.to_builtins(taken(1))}
    causes = [{"kind": "window", "name": "w-1", "window_id": "w-1"}]
    row = {"id": "s-1", "taken_at": "2026-11-29T18:00:00.000Z", "requests": 1, "threads": 1, "causes": causes}
    plan = msgspec.to_builtins(recovery_plan(taken(9), RecoveryConfig()))
    answers = {
        "/v1/snapshot": live,
        "/v1/snapshots/w-1": stored,
        "/v1/snapshots/s-old": {"snapshot": {"requests": [{"id": "r-1"}]}},
        "/v1/snapshots?limit=50": {"snapshots": [row]},
        "/v1/snapshot/plan": plan,
        "/v1/snapshots/w-1/plan": plan | {"snapshot_id": "s-1"},
    }

    with answering(answers.get) as address:
        yield address


@pytest.fixture
def run(agent, monkeypatch, tmp_path) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str) -> str:
        done = CliRunner().invoke(command, [*words, "--agent", agent], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    return invoke


def test_the_table_names_the_stage_the_call_and_since_when(run):
    request, call = (line for line in run().splitlines() if line.startswith(("r-1", "100\t")))
    assert request.split("\t") == [
        "r-1", "/v1/chat", "i-0", "CUDA ordinal 3", "vision_encode/image", "9 s",
        "cuEventSynchronize (7)", "9 s", "preprocess",
    ]  # fmt: skip
    assert call.split("\t")[:4] == ["100", "7", "cuEventSynchronize", "9 s"]
    assert "2 entries came or went during the read" in run()
    assert "CUDA ordinal: the number that its process gives it" in run()


@pytest.mark.parametrize(
    ("device", "shown"),
    [
        (Device(0, "GPU-5a3c0de1-0000-4000-8000-0000000000b3", "context", [], 1), "1 GPU-5a3c0de1"),
        (Device(0, "GPU-5a3c0de1-0000-4000-8000-0000000000b3", "context"), "GPU-5a3c0de1"),
        (Device(0, None, "thread"), "CUDA ordinal 0"),
    ],
)
def test_a_gpu_is_shown_as_the_host_knows_it_and_an_ordinal_as_one(taken, device, shown):
    """The process counts one GPU only, as number 0; the host's index of that GPU is 1."""
    found = taken(9)
    (request,) = found.requests
    body = msgspec.to_builtins(
        msgspec.structs.replace(found, requests=[msgspec.structs.replace(request, devices=[device])])
    )
    with answering({"/v1/snapshot": body}.get) as address:
        done = CliRunner().invoke(command, ["--agent", address], catch_exceptions=False)
    head, row = (line.split("\t") for line in done.output.splitlines()[:2])
    assert row[head.index("GPU")] == shown


def test_json_is_the_agents_answer(run):
    assert json.loads(run("--json"))["host"] == "gpu-7"


def test_what_was_saved_compares_with_now_and_with_a_window(run, tmp_path):
    assert run("--window", "w-1", "--save", "a.json") == "a.json: 1 requests\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    for before in ("a.json", "w-1"):
        lines = run("diff", before, "now").splitlines()
        assert lines[0].endswith("8 s: 0 came, 0 went, 0 moved, 1 still")
        assert lines[2].split("\t")[:6] == [
            "r-1", "still", "i-0", "vision_encode/image", "9 s", "cuEventSynchronize (7)",
        ]  # fmt: skip
    found = json.loads(run("diff", "a.json", "now", "--json"))
    assert found["still"][0]["call"]["call"] == "cuEventSynchronize"
    assert found["before"]["name"] == "a.json"


def test_stored_ones_are_listed_with_their_causes(run):
    assert run("list").splitlines()[1].split("\t") == [
        "s-1", "2026-11-29 18:00:00Z", "1", "1", "window w-1",
    ]  # fmt: skip


def test_the_plan_says_from_where_each_request_goes_on(run):
    lines = run("plan").splitlines()
    assert lines[0] == "results that survive, as declared: gateway media_fetch"
    assert lines[2].split("\t") == [
        "r-1", "i-0", "preprocess", "vision_encode", "redo", "preprocess", "preprocess vision_encode",
    ]  # fmt: skip
    assert json.loads(run("plan", "--window", "w-1", "--json"))["snapshot_id"] == "s-1"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("now", "w-1", "now was taken after w-1"),
        ("w-9", "now", "no such snapshot"),
        ("gone/a.json", "now", "gone/a.json: no such file"),
        ("s-old", "now", "not a snapshot that this version reads"),
        ("text.json", "now", "text.json is not JSON"),
    ],
)
def test_what_cannot_be_compared_is_named_with_a_remedy(agent, monkeypatch, tmp_path, before, after, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.json").write_text("hello")
    with pytest.raises(HotstageError, match=says) as raised:
        CliRunner().invoke(command, ["diff", before, after, "--agent", agent], catch_exceptions=False)
    assert raised.value.remedy


def test_a_file_that_cannot_be_written_is_named(agent, tmp_path):
    target = tmp_path / "absent" / "a.json"
    with pytest.raises(HotstageError, match=r"cannot write .*absent/a\.json"):
        CliRunner().invoke(command, ["--save", str(target), "--agent", agent], catch_exceptions=False)


def test_two_looks_of_now_are_apart_and_one_moment_is_refused(agent, taken, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    answers = iter([msgspec.to_builtins(taken(9)), msgspec.to_builtins(taken(10))])
    with answering(lambda path: next(answers)) as address:
        done = CliRunner().invoke(command, ["diff", "now", "now", "--agent", address], catch_exceptions=False)
    assert slept == [1.0] and "1 s: 0 came, 0 went, 0 moved, 1 still" in done.output
    with pytest.raises(HotstageError, match="of the same moment"):
        CliRunner().invoke(command, ["diff", "w-1", "w-1", "--agent", agent], catch_exceptions=False)


def test_a_call_that_is_only_in_the_stage_has_a_legend(taken):
    thread_row = next(row for row in msgspec.to_builtins(taken(9))["requests"])
    thread_row["stage_threads"], thread_row["threads"] = thread_row["threads"], []
    body = msgspec.to_builtins(taken(9)) | {"requests": [thread_row]}
    with answering(lambda path: body) as address:
        done = CliRunner().invoke(command, ["--agent", address], catch_exceptions=False)
    assert "cuEventSynchronize? (7)" in done.output and "?: the thread does not name" in done.output
