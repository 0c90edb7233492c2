# SPDX-License-Identifier: Apache-2.0
"""`hotstage stages` and `stages explain` against a served API: tables for people, the answer for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.attribution import process, thread

from hotstage.api.access import Access
from hotstage.api.bell import Bell
from hotstage.api.overrides import OverrideDesk
from hotstage.api.routes import Api, Router
from hotstage.api.server import ApiServer
from hotstage.api.stream import EventStream
from hotstage.api.view import Health, Sources, ViewCell
from hotstage.attribution.explain import explain
from hotstage.cli.main import cli
from hotstage.cli.stages import shown_rows
from hotstage.clock import SystemClock
from hotstage.config.settings import HttpConfig
from hotstage.probes.launch_sources import LaunchSources
from hotstage.probes.maps.layout import Source
from hotstage.stages.stage import Stage
from hotstage.stages.waterfall_types import Requests
from hotstage.store.deliveries import Deliveries
from hotstage.store.store import Store

STATE = process(
    thread(5, "vit-0", Source.RULE, Stage.vision_encode, launches=LaunchSources(rule=120, none=3)),
    thread(9, "\x1b[31mred", Source.NONE, launches=LaunchSources(none=40)),
)


@pytest.fixture
def run(tmp_path: Path):
    clock = SystemClock()
    config = HttpConfig(listen="127.0.0.1:0", socket=str(tmp_path / "agent.sock"))
    sources = Sources(
        coverage=dict,
        snapshot=lambda: pytest.fail("nobody asks for it"),
        requests=lambda after, limit, wanted: Requests([], after, {}),
        frames=lambda columns, seconds: {},
        metrics=lambda accept: (b"", ""),
        health=lambda: Health("ok", {}),
        is_ready=lambda: (True, {}),
        explain=lambda pid: explain(STATE, clock, {}) if pid == 77 else None,
    )
    api = Api(
        cell=ViewCell("host-1", clock),
        sources=sources,
        store=Store(tmp_path / "state", clock, "boot"),
        access=Access.of(config),
        clock=clock,
        events=EventStream(),
        outbox_bell=Bell(),
        overrides=OverrideDesk(),
        deliveries=Deliveries(),
    )
    server = ApiServer(config, Router(api))
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    yield lambda *words: CliRunner().invoke(cli, ["stages", *words, "--agent", url])
    api.events.close()
    api.outbox_bell.close()
    server.stop()
    api.store.close()


def test_explain_says_stage_source_and_why(run) -> None:
    said = run("explain", "77").output
    row = next(line for line in said.splitlines() if line.startswith("5\t"))
    assert row.split("\t")[1:8] == [
        "vit-0", "vision_encode", "text", "rule", "80%", "123", "120 rule, 3 none",
    ]  # fmt: skip
    head = next(line for line in said.splitlines() if line.startswith("tid\t"))
    assert head.split("\t")[2:8] == [
        "counts now as", "modality", "because of", "how sure (%)", "launches so far", "by what they counted",
    ]  # fmt: skip
    assert said.count("a row is a thread, the one with most launches first") == 1
    unknown = next(line for line in said.splitlines() if line.startswith("9\t"))
    assert unknown.split("\t")[2:6] == ["—", "—", "none", "—"], "what is unknown is no 0%"
    assert 'rule 1: thread = "vit*"' in row
    assert "launches since the probes were attached: 163 (120 rule, 43 none)" in said
    assert "thread 5 would count as other if that were not there (rule: rule 2" in said
    assert "remedy: add a rule" in said
    assert "without a stage: 43 launches, 26.4%" in said
    assert "  3 of thread vit-0: from before the rule was in force" in said
    assert "\x1b" not in said


def test_explain_json_is_the_answer(run) -> None:
    body = json.loads(run("explain", "77", "--json").output)
    assert [each["tid"] for each in body["threads"]] == [5, 9]


def test_a_process_that_is_not_followed_is_said_with_the_remedy(run) -> None:
    found = run("explain", "78")
    assert found.exit_code != 0
    assert "78" in str(found.exception) + found.output


def test_stages_without_a_verb_lists_them(run) -> None:
    assert "no request has passed a stage yet" in run().output
    assert json.loads(run("--json").output)["stages"] == []


def test_stages_come_in_the_order_of_a_requests_way_and_without_empty_rows():
    def row(stage, requests=0, inflight=0):
        figures = {"requests": requests, "inflight": inflight, "rate": 0.0, "p50_seconds": None}
        return {"stage": stage, "modality": "text", **figures}

    rows = [row("rerank", 1), row("detokenize", 1), row("gateway", 0, 2), row("queue"), row("tokenize", 3)]
    assert [each["stage"] for each in shown_rows(rows)] == ["gateway", "tokenize", "detokenize", "rerank"]
