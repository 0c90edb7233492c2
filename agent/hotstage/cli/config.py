# SPDX-License-Identifier: Apache-2.0
"""`hotstage config check|show|schema`."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from hotstage.cli.reading import config_file, configuration
from hotstage.cli.synonyms import SynonymGroup
from hotstage.cli.terminal import print_json, say
from hotstage.config.load import files_of, problems
from hotstage.config.render import example, schema, shown, toml
from hotstage.config.settings import Config
from hotstage.errors import ConfigError, HotstageError

if TYPE_CHECKING:
    from hotstage.detect.rules.rule_file import Rule

DEGRADED = 3


@click.group(cls=SynonymGroup, synonyms={"list": "show", "status": "check"})
def config() -> None:
    """Check or show the configuration; list every key."""


@config.command()
def check() -> None:
    """Look at all that agent, notifier and explorer look at when they start: files, environment, addresses,
    certificate, rules, destinations, engines, exports.

    Exit 2 when one of them would not start, 3 when a rule would be left out or a webhook destination
    refused. Each message names the key, the place and the remedy.
    """
    from hotstage.cli.start_checks import refusals, refused_destinations
    from hotstage.detect.rules.rule_file import load_rules

    wrong: list[HotstageError] = list(problems(config_file(), os.environ))
    if wrong:
        _end(wrong)
    checked = configuration()
    wrong = list(refusals(checked, os.environ))
    rules, left_out = load_rules(checked.detect.rules_files, builtin=checked.detect.builtin_rules)
    for problem in left_out:
        say(f"a rule is left out: {problem}", err=True)
    refused: list[HotstageError] = []
    with contextlib.suppress(ConfigError):  # one of `refusals` already
        refused += refused_destinations(checked, os.environ)
    for error in refused:
        say(f"a destination is refused: {error.message}\n  remedy: {error.remedy}", err=True)
    if wrong:
        _end(wrong)
    if left_out or refused:
        raise SystemExit(DEGRADED)
    _tell_valid(checked, rules)


def _tell_valid(checked: Config, rules: Sequence[Rule]) -> None:
    """What was looked at: files, detection rules by their file, rules for stages."""
    from hotstage.attribution.rules import SHIPPED_FILE, shipped_rules

    files = ", ".join(map(str, files_of(config_file()))) or "no file, the defaults are in force"
    say(f"the configuration is valid: {files}")
    say(f"rules for detection: {len(rules)}")
    for source, count in Counter(rule.source for rule in rules).items():
        say(f"  {count} of {source}")
    shipped = len(shipped_rules()) if checked.stages.shipped_rules else 0
    say(f"rules for stages: {len(checked.stages.rules) + shipped}")
    say(f"  {len(checked.stages.rules)} of [[stages.rules]]")
    if shipped:
        say(f"  {shipped} of {SHIPPED_FILE}")


def _end(wrong: Sequence[HotstageError]) -> NoReturn:
    for error in wrong:
        say(f"{error.message}\n  remedy: {error.remedy}", err=True)
    raise SystemExit(ConfigError.exit_code)


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of TOML.")
def show(as_json: bool) -> None:
    """What is in force, secrets left out."""
    tree = shown(configuration())
    if as_json:
        print_json(tree)
    else:
        click.echo(toml(tree), nl=False)


@config.command("schema")
@click.option("--example", "as_example", is_flag=True, help="Print a commented example file instead.")
def show_schema(as_example: bool) -> None:
    """Every key with its type, default and meaning, as JSON schema."""
    if as_example:
        click.echo(example(), nl=False)
    else:
        print_json(schema())
