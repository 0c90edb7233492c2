# SPDX-License-Identifier: Apache-2.0
"""What the verbs do the same way: read the configuration in force, and ask the running agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from hotstage.cli.client import AgentClient
from hotstage.config.load import load
from hotstage.config.settings import Config

F = TypeVar("F", bound=Callable[..., Any])


def configuration(flags: Mapping[tuple[str, str], Any] | None = None) -> Config:
    """The configuration in force for the current command. Raises ConfigError."""
    return load(config_file(), os.environ, flags)


def config_file() -> Path | None:
    """The file that the command line names, None for the default one."""
    root = click.get_current_context().find_root()
    named: Path | None = getattr(root.obj, "config_file", None)
    return named


def reading(command: F) -> F:
    """Options of every verb that reads a running agent: `--json` and `--agent URL`."""
    json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
    address = click.option("--agent", "agent_url", metavar="URL", help="Address of the agent's API.")
    return address(json_flag(command))


def agent_client(agent_url: str | None) -> AgentClient:
    """The agent that a reading verb asks."""
    return AgentClient.of(configuration().http, agent_url)
