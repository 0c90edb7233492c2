# SPDX-License-Identifier: Apache-2.0
"""What `hotstage webhook replay` takes for a time and for an id; how a destination is said to stand."""

from __future__ import annotations

import time

import click
import pytest
from click.testing import CliRunner

from hotstage.cli.main import cli
from hotstage.cli.webhook import EventId, PastTime, _state, webhook
from hotstage.config.notify import Destination
from hotstage.errors import ConfigError
from hotstage.notify.db import Counts
from hotstage.notify.destinations import Target

HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize("text", ["2h", " 120m ", "7200s", "0.083333333d"])
def test_a_while_ago(text):
    assert abs(time.time_ns() - 2 * HOUR_NS - PastTime().convert(text, None, None)) < 60 * 10**9


@pytest.mark.parametrize("text", ["2026-11-29T18:00:00Z", "2026-11-29 18:00", "2026-11-29T20:00:00+02:00"])
def test_a_moment(text):
    assert PastTime().convert(text, None, None) == 1_795_975_200 * 10**9


@pytest.mark.parametrize(
    "text",
    [
        "99999999999999999999d",
        "9" * 400 + "d",
        "9" * 5000 + "s",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "60y",
        "-1h",
        "1e9d",
        "inf",
        "",
        "\u0663h",
        "\udcff",
        "2h\x1b[2J",
    ],
)
def test_what_is_no_time_of_an_event_is_a_usage_error_that_names_it_and_what_is(text):
    with pytest.raises(click.BadParameter) as refused:
        PastTime().convert(text, None, None)
    assert refused.value.exit_code == 2
    assert ascii(text.strip())[:20].rstrip("'") in refused.value.message
    assert "2h" in refused.value.message
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("text", ["\udcff", "", "a\x1b[2Jb", "\u00fc"])
def test_what_can_be_no_id_is_a_usage_error(text):
    with pytest.raises(click.BadParameter, match="is not a webhook-id"):
        EventId().convert(text, None, None)


def test_an_id_is_taken_as_it_is():
    assert EventId().convert("evt_00ff", None, None) == "evt_00ff"


@pytest.mark.parametrize("arguments", [("--since", "0001-01-01"), ("--id", "\udcff"), ("--since", "9" * 400)])
def test_the_command_ends_with_2_and_no_traceback(arguments):
    done = CliRunner().invoke(webhook, ["replay", *arguments])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        (None, "new"),
        (Counts("a"), "ok"),
        (Counts("a", delivered=3, delivered_wall_ns=20, failed=1, error="HTTP 503", error_wall_ns=10), "ok"),
        (
            Counts("a", delivered=3, delivered_wall_ns=10, error="HTTP 503", error_wall_ns=20, pending=2),
            "failing",
        ),
        (Counts("a", dead=10, error="HTTP 400", error_wall_ns=20), "failing"),
        (Counts("a", disabled_error="HTTP 410", error_wall_ns=20), "disabled"),
    ],
)
def test_a_destination_whose_last_attempt_failed_is_failing_though_nothing_waits(counts, state):
    target = Target.of(Destination(name="a", url="http://127.0.0.1:9/", format="plain"), {})
    assert _state(target, counts) == state


def test_a_test_of_all_with_none_configured_is_a_usage_error(tmp_path):
    (tmp_path / "config.toml").write_text("")
    done = CliRunner().invoke(cli, ["--config", str(tmp_path / "config.toml"), "webhook", "test", "--all"])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.exit_code == 2
    assert "no destination is configured" in done.exception.message
    assert str(tmp_path / "config.toml") in done.exception.message
    assert "[[notify.destinations]]" in done.exception.remedy
    assert "--config FILE" in done.exception.remedy
    assert "no agent is asked" in done.exception.remedy
