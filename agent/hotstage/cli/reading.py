# SPDX-License-Identifier: Apache-2.0
"""What the verbs do the same way: read the configuration in force, and ask the running agent."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from hotstage.cli.client import AgentClient
from hotstage.config.load import load
from hotstage.config.settings import Config
from hotstage.config.source import is_token, read_text
from hotstage.errors import ConfigError, PeerError

_HOW = "hotstage.cli.reading.how"
AGENT_VARIABLE, SOCKET_VARIABLE = "HOTSTAGE_AGENT", "HOTSTAGE_SOCKET"

F = TypeVar("F", bound=Callable[..., Any])


def configuration(flags: Mapping[tuple[str, str], Any] | None = None) -> Config:
    """The configuration in force for the current command. Raises ConfigError."""
    return load(config_file(), os.environ, flags)


def config_file() -> Path | None:
    """The file that the command line names, None for the default one."""
    root = click.get_current_context().find_root()
    named: Path | None = getattr(root.obj, "config_file", None)
    return named


@dataclass(frozen=True, slots=True)
class _How:
    """How the command line says that the agent is reached."""

    socket: str | None
    ca_file: str | None
    token_file: Path | None


def reading(command: F) -> F:
    """What every verb has that reads an agent: `--json`, what `asking` gives, distrust of the answer."""

    @functools.wraps(command)
    def distrustful(*args: Any, **named: Any) -> Any:
        with understood():
            return command(*args, **named)

    json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
    return asking(cast("F", json_flag(distrustful)))


def asking(command: F) -> F:
    """`--agent URL`, `--socket PATH`, and `--ca-file` and `--token-file` for an agent behind TLS."""

    @functools.wraps(command)
    def told(
        *args: Any, agent_socket: str | None, ca_file: str | None, token_file: Path | None, **named: Any
    ) -> Any:
        click.get_current_context().meta[_HOW] = _How(agent_socket, ca_file, token_file)
        return command(*args, **named)

    address = click.option(
        "--agent",
        "agent_url",
        metavar="URL",
        help=f"Address of the agent's API.  [env var: {AGENT_VARIABLE}]",
    )
    agent_socket = click.option(
        "--socket",
        "agent_socket",
        metavar="PATH",
        help=f"The agent's Unix socket, before any address.  [env var: {SOCKET_VARIABLE}]",
    )
    ca_file = click.option(
        "--ca-file", metavar="FILE", help="Certificates to trust, PEM, where the agent's is not a public one."
    )
    token_file = click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Bearer token, for TLS only.",
    )
    return cast("F", address(agent_socket(ca_file(token_file(told)))))


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
    """The agent that a verb asks: by `--agent` or `--socket`, then as the environment says, then by the
    configuration. Of a socket and an address that are said in the same place the socket comes first.
    """
    how: _How = click.get_current_context().meta.get(_HOW) or _How(None, None, None)
    token = None if how.token_file is None else _token(how.token_file)
    url, path = agent_url, how.socket
    if url is None and path is None:
        url, path = os.environ.get(AGENT_VARIABLE) or None, os.environ.get(SOCKET_VARIABLE) or None
        if url is not None and path is not None and not os.access(path, os.R_OK | os.W_OK):
            path = None
    if path is not None:
        return AgentClient(socket_path=path)
    return AgentClient.of(configuration().http, url, ca_file=how.ca_file, token=token)


def _token(file: Path) -> str:
    """Raises ConfigError, which names the file and nothing of what is in it."""
    token = read_text(file).strip()
    if not is_token(token):
        raise ConfigError(f"{file}: not one line with a token", remedy="name a file with the token alone")
    return token
