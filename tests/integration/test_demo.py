# SPDX-License-Identifier: Apache-2.0
"""The whole line, for real: a fault in the simulated server is counted, seen, named, decided and delivered.

Each run is one `hotstage demo` as a user would type it. No detector was tuned on these seeds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[1] / "contracts/schemas/demo.json").read_text(encoding="utf-8")
)
Report = dict[str, Any]

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(180)]


def demo(*arguments: str, seconds: int, seed: int) -> Report:
    command = [
        sys.executable,
        "-m",
        "hotstage",
        "demo",
        "--json",
        "--seconds",
        str(seconds),
        "--seed",
        str(seed),
    ]
    with tempfile.TemporaryDirectory(prefix="hs-") as own:
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            env={**os.environ, "TMPDIR": own},
        )
        assert done.returncode == 0, done.stderr
        assert list(Path(own).iterdir()) == []
        assert processes_in(own) == []
    report = json.loads(done.stdout)
    jsonschema.validate(report, SCHEMA)
    return report


def processes_in(directory: str) -> list[str]:
    """Processes that name the demo's directory: those that outlived it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if directory in command:
            found.append(command)
    return found


def assert_counts_are_exact(report: Report) -> None:
    calls = report["calls"]
    assert calls["lost"] == 0
    assert calls["counted"] == calls["made"] > 0
    assert all(each["counted"] == each["made"] for each in calls["by_call"].values()), calls["by_call"]


def assert_stages_agree_with_the_truth(report: Report) -> None:
    assert report["stages"]
    for row in report["stages"]:
        assert row["requests"] == row["truth"]["requests"], row
        for quantile in ("p50_seconds", "p95_seconds", "p99_seconds"):
            if row["truth"][quantile] is not None:
                assert row[quantile] == pytest.approx(row["truth"][quantile], rel=0.05), row


def assert_webhooks_arrived(report: Report) -> None:
    hooks = report["webhooks"]
    assert hooks["enqueued"] == hooks["delivered"] == hooks["verified"] > 0
    assert hooks["dead"] == 0


def the_fault(report: Report) -> Report:
    (fault,) = report["faults"]
    assert (fault["detected"], fault["kind_named"], fault["entity_named"]) == (True, True, True), fault
    assert fault["window_closed"] is True, fault
    return fault


def test_a_stalled_encoder_is_caught_named_and_delivered():
    report = demo("--fault", "encoder-stall@8-14", seconds=23, seed=4711)
    assert the_fault(report)["delay_seconds"] <= 5.0
    assert_counts_are_exact(report)
    assert_stages_agree_with_the_truth(report)
    assert_webhooks_arrived(report)
    assert 0 <= report["unattributed_ratio"] <= 0.02
    moved = [breaker for breaker in report["breakers"] if breaker["transitions"]]
    assert [breaker["name"] for breaker in moved] == ["stage:vision_encode:image"]
    assert moved[0]["enforced"] is False
    assert report["agent"]["rss_bytes"] <= 100 << 20


@pytest.mark.long
def test_a_hung_server_is_caught_although_its_health_is_green():
    report = demo("--fault", "hang@10-20", seconds=28, seed=4712)
    fault = the_fault(report)
    assert fault["delay_seconds"] <= 10.0
    assert_counts_are_exact(report)
    (window,) = [each for each in report["windows"] if each["kind"] == "alive_but_hung"]
    assert window["entity"]["instance"] == "i-0"
    assert any(breaker["name"] == "instance:i-0" and breaker["transitions"] for breaker in report["breakers"])


def test_an_xid_and_a_fault_nobody_tuned_for_are_caught_through_bcc_and_the_counts_are_the_same(
    tmp_path: Path,
):
    faults = tmp_path / "faults.toml"
    faults.write_text(
        "[[fault]]\nname = 'slow-align'\nstage = 'cross_modal_align'\nmodality = 'video'\n"
        "factor = 6.0\nshape = 'step'\nstart = 15\nend = 26\n"
    )
    report = demo("--fault", "xid@5-6", "--faults", str(faults), "--loader", "bcc", seconds=34, seed=4716)
    assert (report["loader"], report["rung"]) == ("bcc", "M")
    xid, slow = report["faults"]
    for fault in (xid, slow):
        assert (fault["detected"], fault["kind_named"], fault["entity_named"]) == (True, True, True), fault
        assert fault["window_closed"] is True, fault
    assert xid["delay_seconds"] <= 1.0
    assert slow["delay_seconds"] <= 9.0  # the time of eight affected requests at 1.2 videos/s, and a bit
    assert slow["entity"] == {"stage": "cross_modal_align", "modality": "video"}
    assert_counts_are_exact(report)
    assert_stages_agree_with_the_truth(report)


def moves_of(report: Report, name: str) -> list[tuple[int, str]]:
    (breaker,) = [each for each in report["breakers"] if each["name"] == name]
    return [(move["at_ns"], move["to"]) for move in breaker["transitions"]]


@pytest.mark.long
def test_tokens_that_the_gpu_has_no_room_for_are_told_within_a_second_with_their_reason():
    """The window comes within a second of the first allocation of the first burst; the breaker moves in the
    same tick, the page, the database and the webhook follow.
    """
    report = demo("--fault", "token-conflict@12-16", seconds=29, seed=4717)
    the_fault(report)
    (window,) = report["windows"]
    (first,) = [each for each in report["scenes"] if each["what"] == "allocation"]
    assert window["opened_at_ns"] - first["at_ns"] <= 1_000_000_000
    evidence = {item["column"]: item for item in window["evidence"]}
    assert evidence["visual_tokens"]["value"] > 512 and evidence["text_tokens"]["value"] > 4096
    assert evidence["allocation_bytes"]["value"] > 16 << 20
    assert evidence["predicted_bytes"]["value"] > evidence["predicted_bytes"]["limit"]
    (memory,) = [each for each in report["scenes"] if each["what"] == "memory"]
    true_ratio = 1 - memory["largest_free_bytes"] / memory["free_bytes"]
    assert true_ratio > 0.65
    assert evidence["memory_fragmentation_ratio"]["value"] == pytest.approx(true_ratio, abs=0.1)
    assert moves_of(report, "instance:i-0")[0] == (window["opened_at_ns"], "open")
    assert report["conflicts"]["told"] >= 1
    assert_counts_are_exact(report)
    assert_webhooks_arrived(report)


@pytest.mark.long
def test_a_conflict_less_one_of_its_terms_is_none():
    """Few tokens; memory in one piece; room for all. Each is judged, and found to be that."""
    negatives = ("cut-memory@9-11", "tokens-in-one-piece@15-18", "tokens-with-room@22-25")
    report = demo(*(word for each in negatives for word in ("--fault", each)), seconds=28, seed=4718)
    assert report["windows"] == []
    outcomes = report["conflicts"]
    assert all(outcomes[each] > 0 for each in ("few_tokens", "not_fragmented", "has_room")), outcomes
    assert outcomes["told"] == outcomes["held_back"] == outcomes["lost"] == 0
    assert_counts_are_exact(report)


@pytest.mark.long
def test_an_encoder_on_the_language_models_stream_is_a_window_of_its_own():
    report = demo("--fault", "shared-stream@10-14", seconds=24, seed=4719)
    (fault,) = report["faults"]
    assert (fault["detected"], fault["entity_named"], fault["window_closed"]) == (True, True, True), fault
    assert fault["delay_seconds"] <= 4.0
    (window,) = [each for each in report["windows"] if each["kind"] == "shared_stream"]
    assert window["severity"] == "info"
    assert window["entity"]["stage"] in ("vision_encode", "video_encode")
    assert_counts_are_exact(report)


@pytest.mark.parametrize("moment", ["building", "attaching"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_before_there_is_traffic_it_ends_without_a_report(moment: str, signum: signal.Signals):
    with tempfile.TemporaryDirectory(prefix="hs-") as own:
        running = subprocess.Popen(
            [sys.executable, "-m", "hotstage", "demo", "--seconds", "30", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": own},
        )
        assert running.stderr is not None
        while moment not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signum)
        printed, said = running.communicate(timeout=15)
        assert (running.returncode, printed) == (130, ""), said
        assert list(Path(own).iterdir()) == []
        assert processes_in(own) == []
