# SPDX-License-Identifier: Apache-2.0
"""`hotstage probes`: how the kill switch stands, and who moved it."""

from __future__ import annotations

from click.testing import CliRunner
from support.answers import answering

from hotstage.cli.probes import probes

MOVE = {"state": "off", "actor": "uid 0 (root)", "reason": None, "at": "2030-01-01T00:00:05Z", "at_ns": 5}
OFF = {"state": "off", "actor": "uid 0 (root)", "reason": "update", "since": "2030-01-01T00:00:05Z"}


def said(body, *arguments):
    with answering(lambda path: body) as address:
        return CliRunner().invoke(probes, [*arguments, "--agent", address])


def test_off_is_told_with_who_and_why():
    done = said(OFF)
    assert done.output == "probes are off since 2030-01-01 00:00:05Z, by uid 0 (root): update\n"


def test_history_is_one_line_a_move():
    done = said({**OFF, "moves": [MOVE]}, "history")
    assert done.output.splitlines()[1] == "2030-01-01 00:00:05Z\toff\tuid 0 (root)\t—"
    assert said({**OFF, "moves": []}, "history").output == "nobody has switched them\n"


def test_a_database_that_does_not_answer_is_no_empty_history():
    done = said({**OFF, "moves": None}, "history")
    assert done.exit_code == 1 and "does not answer" in str(done.exception)
