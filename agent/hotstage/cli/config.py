# SPDX-License-Identifier: Apache-2.0
"""`hotstage config check|show|schema`."""

from __future__ import annotations

import os

import click

from hotstage.cli.reading import configuration
from hotstage.cli.terminal import print_json
from hotstage.config.render import example, schema, shown, toml

DEGRADED = 3


@click.group()
def config() -> None:
    """Check or show the configuration; list every key."""


@config.command()
def check() -> None:
    """Read files, environment, rules, destinations, engines and exports; exit 2 on the first wrong key, 3
    when a rule would be left out or a webhook destination refused.

    The message names the key, the place and the remedy.
    """
    from hotstage.detect.rules.rule_file import load_rules
    from hotstage.engines.target import read_targets
    from hotstage.notify.destinations import unsafe
    from hotstage.sinks.otlp.collector import Collector
    from hotstage.sinks.slo import Slos

    checked = configuration()
    Collector.of(checked.otlp, os.environ)
    Slos(checked.slo.objectives)
    read_targets(checked.engines.endpoints)
    rules, problems = load_rules(checked.detect.rules_files, builtin=checked.detect.builtin_rules)
    for problem in problems:
        click.echo(f"a rule is left out: {problem}", err=True)
    refused = unsafe(checked.notify.destinations)
    for error in refused:
        click.echo(f"a destination is refused: {error.message}\n  remedy: {error.remedy}", err=True)
    if problems or refused:
        raise SystemExit(DEGRADED)
    click.echo(f"the configuration is valid, and so are {len(rules)} rules")


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
