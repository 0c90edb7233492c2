# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from hotstage.cli.main import cli

CONFIG = """
[explore]
prometheus = "http://127.0.0.1:9090"
prometheus_token_file = "/etc/hotstage/token"
prometheus_selector = 'job="gpu"'
"""


def become(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str, config: str = CONFIG
) -> list[str]:
    """The explorer's own arguments, where `hotstage explore` would become it."""
    file = tmp_path / "config.toml"
    file.write_text(config)
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _program, words: became.append(words))
    outcome = CliRunner().invoke(cli, ["--config", str(file), "explore", *arguments])
    assert outcome.exit_code == 0, outcome.output
    (command,) = became
    assert command[1:3] == ["-m", "hotstage_explorer"]
    return command[3:]


def test_a_prometheus_of_the_configuration_is_handed_over_with_its_tokens_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = become(monkeypatch, tmp_path)
    assert words[words.index("--prometheus") + 1] == "http://127.0.0.1:9090"
    assert words[words.index("--prometheus-token-file") + 1] == "/etc/hotstage/token"
    assert words[words.index("--prometheus-selector") + 1] == 'job="gpu"'


def test_an_agent_on_the_command_line_wins_over_a_prometheus_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = become(monkeypatch, tmp_path, "--agent", "http://127.0.0.1:1")
    assert words[words.index("--agent") + 1] == "http://127.0.0.1:1"
    assert "--prometheus" not in words


def test_without_a_prometheus_the_agent_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = become(monkeypatch, tmp_path, config="")
    assert words == ["--listen", "127.0.0.1:9179", "--agent", "http://127.0.0.1:9178"]
