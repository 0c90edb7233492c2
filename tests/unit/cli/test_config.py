# SPDX-License-Identifier: Apache-2.0
"""`config check` names all that would stop a process at its start; `config show` names no secret."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hotstage.api.access import group_id
from hotstage.attribution.rules import shipped_rules
from hotstage.cli.main import main
from hotstage.cli.start_checks import refusals, refused_destinations
from hotstage.config.load import load, problems
from hotstage.config.notify import Destination, NotifyConfig
from hotstage.config.settings import Config, HttpConfig
from hotstage.errors import ConfigError

SECRET = "S3CRET"


@pytest.fixture
def said(tmp_path: Path, capsys, monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "HOTSTAGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def said_(text: str, *verb: str) -> tuple[int, str]:
        """Exit code and all output of `hotstage config check` on this file."""
        file = tmp_path / "config.toml"
        file.write_text(text)
        with pytest.raises(SystemExit) as ended:
            main(["--config", str(file), "config", *(verb or ("check",))])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    return said_


def test_defaults_are_valid(said):
    code, text = said("")
    assert (code, "is valid" in text) == (0, True)


def test_a_valid_configuration_is_told_with_its_files_and_both_kinds_of_rules(said, tmp_path: Path):
    (tmp_path / "own.rules.toml").write_text(
        '[[rules]]\nalert = "Own"\nexpr = "gpu_lost > 0"\nentity = "gpu"\nfor = "5s"\n'
    )
    code, text = said(
        f"[detect]\nrules_files = ['{tmp_path}/*.rules.toml']\n"
        "[[stages.rules]]\nthread = 'q'\nstage = 'queue'\n[[stages.rules]]\nthread = 'r'\nstage = 'other'\n"
    )
    lines = text.splitlines()
    assert code == 0, text
    assert lines[0] == f"the configuration is valid: {tmp_path}/config.toml"
    assert f"  1 of {tmp_path}/own.rules.toml" in lines
    assert "  2 of [[stages.rules]]" in lines
    shipped = len(shipped_rules())
    assert f"rules for stages: {2 + shipped}" in lines
    assert any(line.startswith(f"  {shipped} of ") and "shipped.rules.toml" in line for line in lines)


def test_all_wrong_keys_are_named_at_once(said, tmp_path: Path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/10.toml").write_text("[http\n")
    (tmp_path / "conf.d/20.toml").write_text("[http]\nlisten = 'zzz'\n")
    code, text = said(
        "[prob]\nx = 1\ny = 2\n[probes]\nthreads = -1\nlaoder = 'bcc'\n[windows]\nclose_after_seconds = inf\n"
    )
    assert code == 2
    for named in (
        "[prob]",
        "`probes.threads`",
        "`laoder`",
        "close_after_seconds",
        "10.toml: not valid",
        "20.toml:2",
    ):
        assert named in text, text
    assert text.count("[prob]") == 1
    assert text.count("remedy:") == 6


def test_all_that_would_stop_a_process_is_named_at_once(said, tmp_path: Path):
    certificate = tmp_path / "certificate.pem"
    certificate.write_text("none")
    code, text = said(f"""
[http]
tls_certificate_file = "{certificate}"
tls_key_file = "{certificate}"
socket_group = "no-such-group"
[otlp]
headers_file = "{tmp_path}/absent-headers"
[[slo.objectives]]
name = "twice"
endpoint = "/a"
latency_seconds = 1
[[slo.objectives]]
name = "twice"
endpoint = "/b"
latency_seconds = 1
[[engines.endpoints]]
name = "e"
url = "http://engine.example"
token_file = "{tmp_path}/absent-token"
[explore]
prometheus_token_file = "{tmp_path}/absent-prometheus"
[[notify.destinations]]
name = "d"
url = "https://h.example"
secret_file = "{tmp_path}/absent-secret"
[detect]
rules_files = ["{tmp_path}/absent-rules"]
""")
    assert code == 2
    for named in (
        "certificate.pem",
        "no group no-such-group",
        "absent-headers",
        "two are named twice",
        "token would cross the network",
        "absent-token",
        "absent-prometheus",
        "absent-secret",
        "absent-rules",
    ):
        assert named in text, f"{named} in {text}"


def test_a_missing_token_is_named(said, tmp_path: Path):
    code, text = said(f'[http]\ntoken_file = "{tmp_path}/absent"\n')
    assert code == 2
    assert f"http.token_file {tmp_path}/absent" in text


@pytest.mark.parametrize(
    "endpoint", ["http://[::1", "http://h:99999", "http://h:x", f"http://h:{SECRET}@x:1:y"]
)
@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_no_variable_of_another_program_makes_a_traceback(endpoint: str, name: str):
    found = list(refusals(Config(), {name: endpoint}))
    assert all(isinstance(each, ConfigError) for each in found)
    assert SECRET not in "".join(each.message for each in found)


def test_a_rule_file_nested_too_deep_is_left_out_and_told(said, tmp_path: Path):
    (tmp_path / "rules.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    code, text = said(f'[detect]\nrules_files = ["{tmp_path}/rules.toml"]\n')
    assert (code, "nested too deep" in text) == (3, True)


def test_a_secret_that_only_systemd_gives_is_not_missed():
    config = Config(
        notify=NotifyConfig(
            destinations=[
                Destination(name="a", url="https://h.example", secret_file="credential"),
                Destination(name="b", url="https://h.example", secret_env="SECRET_OF_B"),
                Destination(name="c", url="http://h.example", secret_env="SECRET_OF_C"),
            ]
        )
    )
    assert [each.message.split(":")[0] for each in refused_destinations(config, {})] == [
        "notify.destinations c"
    ]


def test_what_is_named_is_what_load_refuses(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text("[probes]\nthreads = 5\n")
    assert list(problems(file, {"HOTSTAGE_PROBES_XID": "false", "PATH": "/bin"})) == []
    named = list(problems(file, {"HOTSTAGE_PROBES_XID": "maybe", "HOTSTAGE_HTTP_LISTN": "x"}))
    assert len(named) == 2
    with pytest.raises(ConfigError):
        load(file, {"HOTSTAGE_PROBES_XID": "maybe"})


def test_an_unknown_group_is_refused_where_the_agent_begins():
    with pytest.raises(ConfigError, match="no group no-such-group"):
        group_id("no-such-group")
    assert list(refusals(Config(http=HttpConfig(socket_group="no-such-group")), {}))


def test_no_file_with_a_secret_holds_the_check_up_when_it_is_none(said, tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code, text = said(
        f'[http]\ntoken_file = "{fifo}"\n[otlp]\nheaders_file = "{fifo}"\nendpoint = "http://h"\n'
        f'[[notify.destinations]]\nname = "d"\nurl = "https://h.example"\nsecret_file = "{fifo}"\n'
    )
    assert code == 2
    assert text.count("not a regular file") == 3


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_show_names_no_secret_of_any_url(said, flags):
    text = f"""
[notify]
explorer_url = "https://h.example/{SECRET}"
[[notify.destinations]]
name = "a"
url = "https://u:{SECRET}@h.example/{SECRET}?t={SECRET}"
[[engines.endpoints]]
name = "e"
url = "https://h.example/{SECRET}/metrics"
[otlp]
endpoint = "https://h.example/{SECRET}"
[explore]
prometheus = "https://h.example/{SECRET}"
agent = "http://h.example/{SECRET}"
"""
    code, shown = said(text, "show", *flags)
    assert code == 0
    assert SECRET not in shown
    assert shown.count("h.example") == 6
    if flags:
        assert json.loads(shown)["explore"]["agent"] == "http://h.example/…"
