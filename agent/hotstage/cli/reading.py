# SPDX-License-Identifier: Apache-2.0
"""What the verbs do the same way: read the configuration in force, and ask the running agent."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from hotstage.cli.client import AgentClient
from hotstage.config.load import load
from hotstage.config.settings import Config
from hotstage.config.source import is_token, read_text
from hotstage.errors import ConfigError, PeerError

_TLS = "hotstage.cli.reading.tls"

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
    """What every verb has that reads a running agent: `--json`, `--agent URL`, `--ca-file` and `--token-file`
    for one behind TLS, and distrust of the answer.
    """

    @functools.wraps(command)
    def distrustful(*args: Any, ca_file: str | None, token_file: Path | None, **named: Any) -> Any:
        click.get_current_context().meta[_TLS] = ca_file, token_file
        with understood():
            return command(*args, **named)

    json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
    address = click.option("--agent", "agent_url", metavar="URL", help="Address of the agent's API.")
    ca_file = click.option(
        "--ca-file", metavar="FILE", help="Certificates to trust, PEM, where the agent's is not a public one."
    )
    token_file = click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Bearer token, for TLS only.",
    )
    return cast("F", address(ca_file(token_file(json_flag(distrustful)))))


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Around reading an answer's fields: PeerError where one is missing or of another kind."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise PeerError(
            f"the answer is not one that this version reads: {type(error).__name__}: {error}",
            remedy="let agent and command be of one version; is another program at the agent's address?",
        ) from error


def agent_client(agent_url: str | None) -> AgentClient:
    """The agent that a reading verb asks."""
    ca_file, token_file = click.get_current_context().meta.get(_TLS, (None, None))
    token = None if token_file is None else _token(token_file)
    return AgentClient.of(configuration().http, agent_url, ca_file=ca_file, token=token)


def _token(file: Path) -> str:
    """Raises ConfigError, which names the file and nothing of what is in it."""
    token = read_text(file).strip()
    if not is_token(token):
        raise ConfigError(f"{file}: not one line with a token", remedy="name a file with the token alone")
    return token
