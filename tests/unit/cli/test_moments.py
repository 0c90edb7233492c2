# SPDX-License-Identifier: Apache-2.0
"""`hotstage windows` and `hotstage breakers` say of which moment the figures in a sentence are."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from support.receivers import RawReceiver, Reply

from hotstage.cli.main import cli

WINDOW = {
    "id": "w1", "severity": "critical", "kind": "alive_but_hung", "opened_at": "2026-11-29T18:00:00Z",
    "closed_at": None, "entity": {"instance": "i-0"}, "cause": {"summary": "51 requests in flight"},
    "score": 3.42, "peak_at": "2026-11-29T18:00:04Z", "figures_at": "2026-11-29T18:00:09Z",
}  # fmt: skip
BREAKER = {
    "name": "instance:i-0", "state": "open", "enforced": False, "since": "2026-11-29T18:00:00Z",
    "stale": False, "override": None, "reason": "41 requests in flight",
}  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "answer", "figures", "moment"),
    [
        ("windows", {"windows": [WINDOW]}, "51 requests", "the time under `figures of`"),
        ("windows", {"windows": []}, "no anomaly window", ""),
        ("breakers", {"at_ns": 1, "breakers": [BREAKER]}, "41 requests", "of the time under since"),
        ("breakers", {"at_ns": 1, "breakers": []}, "no breaker exists yet", ""),
    ],
)
def test_figures_are_told_with_their_moment(verb, answer, figures, moment):
    with RawReceiver(lambda request, before: Reply(200, body=json.dumps(answer).encode())) as agent:
        done = CliRunner().invoke(cli, [verb, "--agent", agent.url], catch_exceptions=False)
        as_json = CliRunner().invoke(cli, [verb, "--json", "--agent", agent.url], catch_exceptions=False)
    assert figures in done.stdout
    assert moment in done.stderr
    assert bool(moment) is bool(done.stderr)
    assert ("3.42 × at" in done.stdout) is ("18:00:09Z" in done.stdout) is bool(answer.get("windows"))
    assert json.loads(as_json.stdout) == answer
    assert as_json.stderr == ""
