# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket

import pytest
from click.testing import CliRunner

from hotstage_explorer.__main__ import main


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":9179"])
def test_a_bad_place_to_listen_is_a_usage_error_that_shows_a_good_one(listen: str) -> None:
    outcome = CliRunner().invoke(main, ["--listen", listen])
    assert outcome.exit_code == 2
    assert "127.0.0.1:9179" in outcome.output


@pytest.mark.parametrize("agent", ["ftp://h", "127.0.0.1:9178", "http://", "http://h/path", "http://h:99999"])
def test_a_bad_agent_address_is_a_usage_error(agent: str) -> None:
    outcome = CliRunner().invoke(main, ["--listen", "127.0.0.1:0", "--agent", agent])
    assert outcome.exit_code == 2
    assert agent in outcome.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prometheus", "ftp://h"], "http://127.0.0.1:9090"),
        (
            ["--prometheus", "http://h", "--prometheus-selector", 'job="a"} or up{job="b"'],
            "prometheus_selector",
        ),
        (["--prometheus", "http://h", "--prometheus-token-file", "/t"], "https"),
    ],
)
def test_a_bad_prometheus_is_a_usage_error_that_says_what_is_good(arguments: list[str], words: str) -> None:
    outcome = CliRunner().invoke(main, ["--listen", "127.0.0.1:0", *arguments])
    assert outcome.exit_code == 2
    assert words in outcome.output


def test_credentials_in_an_address_are_not_repeated() -> None:
    outcome = CliRunner().invoke(main, ["--listen", "127.0.0.1:0", "--agent", "http://u:hunter2@h/"])
    assert outcome.exit_code == 2
    assert "hunter2" not in outcome.output


def test_a_port_in_use_is_said_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = CliRunner().invoke(main, ["--listen", f"127.0.0.1:{port}", "--agent", "http://127.0.0.1:9"])
    assert outcome.exit_code == 4
    assert f"cannot listen on 127.0.0.1:{port}" in outcome.output
    assert "--listen HOST:PORT" in outcome.output
