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


def test_what_another_window_explains_names_it_and_each_ratio_its_basis():
    explained = {**WINDOW, "caused_by": "w0"}
    answer = json.dumps({"windows": [explained, WINDOW]}).encode()
    with RawReceiver(lambda request, before: Reply(200, body=answer)) as agent:
        done = CliRunner().invoke(cli, ["windows", "--agent", agent.url], catch_exceptions=False)
    head, first, second = (line.split("\t") for line in done.stdout.splitlines())
    place = head.index("cause")
    assert first[place] == "51 requests in flight; explained by window w0"
    assert second[place] == "51 requests in flight"
    # A terminal's dates are not today's; the ratio says what it is over.
    assert first[head.index("worst ÷ limit")] == "3.42 × its limit at 2026-11-29 18:00:04Z"
    assert "worst ÷ limit: its highest value over the limit of its detector" in done.stderr
    assert "2.5 times" in done.stderr


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
    assert (
        ("3.42 × its limit at" in done.stdout) is ("18:00:09Z" in done.stdout) is bool(answer.get("windows"))
    )
    assert json.loads(as_json.stdout) == answer
    assert as_json.stderr == ""
