# SPDX-License-Identifier: Apache-2.0
"""`hotstage notify` says when it has nobody to tell."""

from __future__ import annotations

import logging

import pytest
from click.testing import CliRunner

from hotstage.cli import notify as module
from hotstage.cli.main import cli
from hotstage.notify import process

DESTINATION = '[[notify.destinations]]\nname = "a"\nurl = "https://a.example"\n'


@pytest.mark.parametrize(("text", "is_warned"), [("", True), (DESTINATION, False)])
def test_without_a_destination_it_warns(text, is_warned, tmp_path, monkeypatch, caplog):
    file = tmp_path / "config.toml"
    file.write_text(text)
    monkeypatch.setattr(module, "start_logging", lambda *_: None)
    monkeypatch.setattr(process, "run", lambda *_: False)
    with caplog.at_level(logging.WARNING):
        done = CliRunner().invoke(cli, ["--config", str(file), "notify"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert ("no destination is configured" in caplog.text) is is_warned
