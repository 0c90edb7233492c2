# SPDX-License-Identifier: Apache-2.0
"""A new configuration for a running line: all of it, or nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from hotstage.config.settings import (
    BreakersConfig,
    Config,
    DetectConfig,
    HttpConfig,
    LogConfig,
    WindowsConfig,
)
from hotstage.daemon.line import Line
from hotstage.daemon.reload import is_live, plan
from hotstage.detect.rules.rule_file import load_rules
from hotstage.errors import ConfigError

RULE = """
[[rules]]
alert = "too_hot"
expr = "no_such_column > 90"
"""


@pytest.fixture
def line(clock):
    rules, _ = load_rules([], builtin=True)
    return Line(Config(), clock, rules)


@pytest.fixture
def root_level():
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def test_limits_policy_and_log_level_are_taken_over(line, make, root_level):
    line.restore([make.breaker()])
    wanted = Config(
        detect=DetectConfig(hang_seconds=7.0, xid_active_seconds=9.0),
        windows=WindowsConfig(max_open=3),
        breakers=BreakersConfig(enforced=True),
        log=LogConfig(level="debug"),
    )
    reload = plan(Config(), lambda: wanted)
    reload.apply(line)
    assert reload.needs_restart == ()
    assert set(reload.taken) == {
        "detect.hang_seconds",
        "detect.xid_active_seconds",
        "windows.max_open",
        "breakers.enforced",
        "log.level",
    }
    assert reload.config == wanted
    assert [record.enforced for record in line.breakers.records] == [True]
    assert logging.getLogger().level == logging.DEBUG


def test_what_needs_a_restart_is_named_and_stays_as_it_was():
    wanted = Config(
        http=HttpConfig(listen="127.0.0.1:1", max_connections=8),
        detect=DetectConfig(stage_latency_factor=4.0, hang_seconds=7.0),
        log=LogConfig(format="json"),
    )
    reload = plan(Config(), lambda: wanted)
    assert reload.taken == ("detect.hang_seconds",)
    assert set(reload.needs_restart) == {
        "http.listen",
        "http.max_connections",
        "detect.stage_latency_factor",
        "log.format",
    }
    assert reload.config == replace(Config(), detect=DetectConfig(hang_seconds=7.0))


def test_what_waits_for_a_restart_is_named_again_at_the_next_reload():
    wanted = Config(http=HttpConfig(listen="127.0.0.1:1"))
    first = plan(Config(), lambda: wanted)
    assert plan(first.config, lambda: wanted).needs_restart == ("http.listen",)


def test_a_wrong_file_changes_nothing():
    def refuse() -> Config:
        raise ConfigError("config.toml:3: [http] has no key `lissen`", remedy="did you mean `listen`?")

    with pytest.raises(ConfigError, match="lissen"):
        plan(Config(), refuse)


def test_one_wrong_rule_refuses_all(tmp_path: Path):
    (tmp_path / "bad.toml").write_text(RULE)
    wanted = Config(detect=DetectConfig(rules_files=[str(tmp_path / "bad.toml")], hang_seconds=7.0))
    with pytest.raises(ConfigError, match="no_such_column"):
        plan(Config(), lambda: wanted)


def test_keys_of_every_section_are_either_live_or_not():
    keys = {f"{s}.{k}" for s in Config.__struct_fields__ for k in getattr(Config(), s).__struct_fields__}
    live = {key for key in keys if is_live(key)}
    assert {"breakers.enforced", "detect.rules_files", "windows.close_after_seconds", "log.level"} <= live
    assert not any(key.startswith(("probes.", "http.", "store.", "devices.", "page.")) for key in live)
