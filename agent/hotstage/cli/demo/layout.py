# SPDX-License-Identifier: Apache-2.0
"""Where a demo lives: one temporary directory, free loopback ports, a configuration that points there."""

from __future__ import annotations

import base64
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hotstage.cli import unprivileged
from hotstage.config.explore import ExploreConfig
from hotstage.config.governor import GovernorConfig
from hotstage.config.notify import Destination, NotifyConfig
from hotstage.config.render import toml
from hotstage.config.settings import (
    BreakersConfig,
    Config,
    DevicesConfig,
    HttpConfig,
    PageConfig,
    ProbesConfig,
    StoreConfig,
)


@dataclass(frozen=True, slots=True)
class DemoLayout:
    """Paths and addresses of one demo."""

    directory: Path
    config: Config
    config_file: Path
    secret_file: Path
    receiver_port: int


def lay_out(
    directory: Path,
    *,
    loader: str,
    nvml_directory: Path,
    agent_port: int | None = None,
    explorer_port: int | None = None,
) -> DemoLayout:
    """Write the secret and the configuration; both belong to the account of the unprivileged processes.

    A port that is not given is a free one.
    """
    free = free_ports(3)
    agent_port, explorer_port, receiver_port = agent_port or free[0], explorer_port or free[1], free[2]
    notify, state = directory / "notify", directory / "state"
    for folder in (notify, state):
        folder.mkdir(mode=0o750)
    secret = directory / "receiver.secret"
    secret.write_text("whsec_" + base64.b64encode(secrets.token_bytes(32)).decode())
    secret.chmod(0o600)
    config = Config(
        probes=msgspec.convert({"loader": loader}, ProbesConfig),
        # Simulated calls use next to no CPU, so what share of it their probes cost says nothing.
        governor=GovernorConfig(enabled=False),
        devices=DevicesConfig(library_directory=str(nvml_directory)),
        breakers=BreakersConfig(cool_down_seconds=5.0, close_for_seconds=4.0),
        store=StoreConfig(directory=str(state)),
        http=HttpConfig(listen=f"127.0.0.1:{agent_port}", socket=str(directory / "agent.sock")),
        page=PageConfig(path=str(directory / "breakers")),
        explore=ExploreConfig(listen=f"127.0.0.1:{explorer_port}", agent=f"http://127.0.0.1:{agent_port}"),
        notify=NotifyConfig(
            agent_socket=str(directory / "agent.sock"),
            directory=str(notify),
            retry_base_seconds=0.5,
            destinations=[
                Destination(
                    name="receiver",
                    url=f"http://127.0.0.1:{receiver_port}/events",
                    secret_file=str(secret),
                )
            ],
        ),
    )
    file = directory / "config.toml"
    file.write_text(toml(msgspec.to_builtins(config)), encoding="utf-8")
    _hand_over(directory, notify, secret)
    return DemoLayout(directory, config, file, secret, receiver_port)


def _hand_over(directory: Path, *paths: Path) -> None:
    """The notifier's directory and its secret belong to the account it runs as; all may pass through."""
    directory.chmod(0o755)
    entry = unprivileged.account()
    if entry is not None:
        for path in paths:
            os.chown(path, entry.pw_uid, entry.pw_gid)


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [int(entry.getsockname()[1]) for entry in sockets]
    finally:
        for entry in sockets:
            entry.close()
