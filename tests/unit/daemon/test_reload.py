# SPDX-License-Identifier: Apache-2.0
"""A new configuration for a running line: all of it, or nothing."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hotstage.config.conflict import ConflictConfig
from hotstage.config.load import load
from hotstage.config.log import LogConfig
from hotstage.config.settings import (
    BreakersConfig,
    Config,
    DetectConfig,
    HttpConfig,
    WindowsConfig,
)
from hotstage.daemon.line import Line
from hotstage.daemon.reload import is_live, plan, take_over
from hotstage.detect.rules.rule_file import load_rules
from hotstage.errors import ConfigError, HotstageError
from hotstage.probes.conflict import Conflicts

RULE = """
[[rules]]
alert = "too_hot"
expr = "no_such_column > 90"
"""


@pytest.fixture
def line(clock):
    rules, _ = load_rules([], builtin=True)
    conflicts = Conflicts()
    made = Line(Config(), clock, rules, limit_conflicts=conflicts.limit)
    made.conflicts = conflicts
    return made


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
        conflict=ConflictConfig(visual_tokens=9, reserve_ratio=0.1, active_seconds=2.0),
        log=LogConfig(level="debug"),
    )
    reload = plan(Config(), lambda: wanted)
    reload.apply(line, Config())
    assert reload.needs_restart == ()
    assert set(reload.taken) == {
        "detect.hang_seconds",
        "detect.xid_active_seconds",
        "windows.max_open",
        "breakers.enforced",
        "conflict.visual_tokens",
        "conflict.reserve_ratio",
        "conflict.active_seconds",
        "log.level",
    }
    assert reload.config == wanted
    assert [record.enforced for record in line.breakers.records] == [True]
    assert logging.getLogger().level == logging.DEBUG
    assert line.conflicts._limits["tokens"].tolist() == [[9, 4096]], "the next allocation is judged by it"
    assert line.headroom._config == line.detectors._conflict._config == wanted.conflict


def test_what_needs_a_restart_is_named_and_stays_as_it_was():
    wanted = Config(
        http=HttpConfig(listen="127.0.0.1:1", max_connections=8),
        detect=DetectConfig(stage_latency_factor=4.0, stage_latency_floor_seconds=0.1, hang_seconds=7.0),
        log=LogConfig(format="json"),
    )
    reload = plan(Config(), lambda: wanted)
    assert reload.taken == ("detect.hang_seconds",)
    assert set(reload.needs_restart) == {
        "http.listen",
        "http.max_connections",
        "detect.stage_latency_factor",
        "detect.stage_latency_floor_seconds",
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


def limits(line: Line) -> tuple[object, ...]:
    """What of the line a reload changes."""
    return (
        [rule.name for rule in line.detectors.rules.rules],
        vars(line.assembler) | {"_new_id": None},
        line.breakers._policy,
        line.breakers._enforced,
        line.conflicts._limits.tobytes(),
        line.headroom._config,
        line.headroom._token_bytes,
        line.detectors._conflict._config,
        logging.getLogger().level,
    )


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    "text",
    [
        f"[frame]\nheat_weights = {DEEP}",
        "[windows]\nclose_after_seconds = inf",
        "[breakers]\ncool_down_seconds = 1e300",
        "[detect]\nhang_seconds = inf",
        "[conflict]\nvisual_tokens = 9\ngap_seconds = inf",
        "[windows]\nmax_open = " + "9" * 5000,
        "[detect]\nrules_files = ['RULES']",
    ],
)
def test_no_file_ends_the_agent_or_is_taken_in_part(line, tmp_path: Path, text: str):
    (tmp_path / "rules.toml").write_text(f"x = {DEEP}")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "config.toml").write_text('[log]\nlevel = "debug"\n')
    (tmp_path / "conf.d/10.toml").write_text(text.replace("RULES", str(tmp_path / "rules.toml")))
    before = limits(line)
    outcome = take_over(line, Config(), lambda: load(tmp_path / "config.toml", {}))
    assert isinstance(outcome, ConfigError)
    assert limits(line) == before


def test_a_part_that_refuses_takes_all_others_back(line, caplog, root_level):
    logging.getLogger().setLevel(logging.INFO)
    before = limits(line)
    # Past the checks of `load`, as a value would be that nobody foresaw.
    wanted = Config(
        windows=WindowsConfig(max_open=3),
        breakers=BreakersConfig(enforced=True),
        conflict=ConflictConfig(text_tokens=7, visual_token_bytes=3, gap_seconds=math.inf),
    )
    outcome = take_over(line, Config(), lambda: wanted)
    assert isinstance(outcome, HotstageError) and "OverflowError" in outcome.message
    assert limits(line) == before
    assert "nobody foresaw" in caplog.text


def test_an_error_that_nobody_foresaw_while_reading_changes_nothing(line):
    def fail() -> Config:
        raise RecursionError("deep")

    before = limits(line)
    outcome = take_over(line, Config(), fail)
    assert isinstance(outcome, HotstageError) and "RecursionError" in outcome.message
    assert limits(line) == before


def test_every_bound_of_the_live_sections_can_be_taken_over(line, root_level):
    """The largest and the smallest that `load` lets pass."""
    for section in (DetectConfig, WindowsConfig, BreakersConfig, ConflictConfig):
        fields = {key: value for key, value in msgspec.to_builtins(section()).items() if type(value) is float}
        for value in (1e9, 5e-324):
            bounded = {key: min(value, 1.0) if "ratio" in key else value for key in fields}
            name = section.__name__.removesuffix("Config").lower()
            wanted = msgspec.convert({name: bounded}, Config)
            assert not isinstance(take_over(line, Config(), lambda wanted=wanted: wanted), HotstageError)
