# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong, the user gets a message, a remedy and the right exit code; never a traceback."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hotstage.cli.main import VERBS, cli, main
from hotstage.errors import HotstageError


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_module_and_says_what_it_does(verb: str):
    module, summary = VERBS[verb]
    command = getattr(importlib.import_module(module), verb)
    assert isinstance(command, click.Command)
    assert summary
    assert command.help or command.get_short_help_str()


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in {"config", "bench"}])
def test_help_of_every_verb_works(verb: str):
    result = CliRunner().invoke(cli, [verb, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0), capsys.readouterr().err


def test_an_unknown_verb_is_a_usage_error(capsys):
    code, said = run(["wachten"], capsys)
    assert code == 2
    assert "wachten" in said


def test_an_unknown_key_names_key_file_and_remedy(tmp_path, capsys):
    file = tmp_path / "config.toml"
    file.write_text("[http]\nlisten_on = 'x'\n")
    code, said = run(["--config", str(file), "config", "check"], capsys)
    assert code == 2
    assert f"{file}:2" in said
    assert "remedy" in said


def test_no_agent_names_the_address_and_the_remedy(capsys):
    code, said = run(["coverage", "--agent", "http://127.0.0.1:1"], capsys)
    assert code == 1
    assert "http://127.0.0.1:1" in said
    assert "hotstage up" in said


def test_an_address_that_is_none_is_refused(capsys):
    code, said = run(["windows", "--agent", "127.0.0.1:9178"], capsys)
    assert code == 1
    assert "not an http(s) URL" in said


def test_what_is_no_duration_is_told_how_to_write_one(capsys):
    code, said = run(["breakers", "trip", "host", "--ttl", "soon"], capsys)
    assert code == 2
    assert "10m" in said


@pytest.mark.parametrize("word", ["hlep", "help"])
def test_help_without_its_dashes_is_told_with_them(word, capsys):
    code, said = run([word], capsys)
    assert code == 2
    assert "did you mean `hotstage --help`?" in said


@pytest.mark.parametrize("words", [["breakers", "list"], ["windows", "list"], ["probes", "status"]])
def test_a_word_for_what_the_verb_does_alone_is_accepted(words, capsys):
    code, said = run([*words, "--agent", "http://127.0.0.1:1"], capsys)
    assert code == 1
    assert "no agent answers" in said


def test_config_list_shows_it(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["config", "list"])
    assert not ended.value.code
    assert "[http]" in capsys.readouterr().out


def test_a_fault_that_is_none_is_refused_before_anything_is_built(capsys):
    code, said = run(["demo", "--fault", "encoder-stal"], capsys)
    assert code == 2
    assert "encoder-stal" in said and "building" not in said


@pytest.mark.parametrize("seconds", ["nan", "inf", "0.5", "soon"])
def test_a_demo_of_no_length_is_a_usage_error(seconds, capsys):
    code, said = run(["demo", "--seconds", seconds], capsys)
    assert code == 2
    assert "--seconds" in said


def test_a_check_of_the_configuration_reads_the_rules_too(tmp_path, capsys):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nalert = "Broken"\nexpr = "request_rat > 1"\n')
    file = tmp_path / "config.toml"
    file.write_text(f"[detect]\nrules_files = ['{rules}']\n")
    code, said = run(["--config", str(file), "config", "check"], capsys)
    assert code == 3
    assert "'Broken'" in said
    assert "request_rat" in said
    rules.write_text("")
    assert run(["--config", str(file), "config", "check"], capsys)[0] == 0


def test_words_of_strangers_in_an_error_control_no_terminal(monkeypatch, capsys):
    def failing(**_: object) -> None:
        raise HotstageError("\x1b]0;x\x07 \x9b31m", remedy="two\nlines \x1b[0m")

    monkeypatch.setattr(cli, "main", failing)
    code, said = run([], capsys)
    assert code == 1
    assert said == "hotstage: ?]0;x? ?31m\n  remedy: two\nlines ?[0m\n"


def test_an_agent_that_may_not_listen_leaves_nothing_behind(tmp_path):
    file = tmp_path / "config.toml"
    places = {"store.directory": "state", "page.path": "page", "http.socket": "agent.sock"}
    settings = [f'{key} = "{tmp_path / name}"' for key, name in places.items()]
    file.write_text("\n".join([*settings, 'http.listen = "0.0.0.0:0"']))
    command = [sys.executable, "-m", "hotstage", "--config", str(file), "agent"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "without a token" in done.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_under_the_output_is_said_not_traced():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hotstage", "config", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot be written: No space left on device" in done.stderr
    assert "remedy" in done.stderr
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


@pytest.mark.parametrize(("typed", "hint"), [("requst", "`hotstage requests`"), ("zzz", "there are: doctor")])
def test_an_unknown_verb_is_told_the_nearest_one(typed, hint):
    done = CliRunner().invoke(cli, [typed])
    assert done.exit_code == 2
    assert f"no command '{typed}'" in done.output
    assert hint in done.output
