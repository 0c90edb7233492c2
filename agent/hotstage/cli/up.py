# SPDX-License-Identifier: Apache-2.0
"""`hotstage up`: agent, notifier and explorer on one host, each with no more privileges than it needs."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import click

from hotstage.cli import unprivileged
from hotstage.cli.logs import start_logging
from hotstage.cli.reading import configuration
from hotstage.cli.supervisor import Child, Supervisor
from hotstage.clock import SystemClock
from hotstage.config.settings import Config
from hotstage.errors import PrivilegeError

_WATCH_SECONDS = 0.2


@click.command()
@click.option("--loader", type=click.Choice(["auto", "libbpf", "bcc"]), help="Compiler of the call counters.")
def up(loader: str | None) -> None:
    """Start agent, notifier and explorer; Ctrl-C ends all."""
    config = configuration({("probes", "loader"): loader})
    start_logging(config.log, "up")
    require_root()
    root = click.get_current_context().find_root()
    sys.exit(run_until_signalled(config, root.obj.config_file, loader))


def require_root() -> None:
    """Raise PrivilegeError unless this process may start a privileged agent."""
    if os.geteuid() != 0:
        raise PrivilegeError(
            "probes need root here", remedy="run it with sudo, or install the service (make install)"
        )


def run_until_signalled(config: Config, config_file: Path | None, loader: str | None) -> int:
    """Supervise until SIGINT or SIGTERM (0), or until the agent says that it cannot run here (its code)."""
    asked: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    supervisor = Supervisor(SystemClock())
    try:
        for child in children(config, config_file, loader):
            supervisor.start(child)
        click.echo(
            f"explorer: http://{config.explore.listen}/  agent: http://{config.http.listen}/", err=True
        )
        while not asked:
            code = supervisor.watch()
            if code is not None:
                return code
            time.sleep(_WATCH_SECONDS)
        return 0
    finally:
        supervisor.stop()


def children(config: Config, config_file: Path | None, loader: str | None) -> list[Child]:
    """Agent first: the others look for it and wait. Their state directories are made before privileges go."""
    hotstage = [sys.executable, "-m", "hotstage", *(["--config", str(config_file)] if config_file else [])]
    agent = [*hotstage, "agent", *(["--loader", loader] if loader else [])]
    _prepare_notifier(config)
    plain = unprivileged.command_prefix()
    return [
        Child("agent", agent, {}, essential=True),
        Child("notify", [*plain, *hotstage, "notify"], {}),
        Child("explore", [*plain, *hotstage, "explore"], {}),
    ]


def _prepare_notifier(config: Config) -> None:
    """The notifier's directory belongs to the account it will run as."""
    directory = Path(config.notify.directory)
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    entry = unprivileged.account()
    if entry is not None:
        os.chown(directory, entry.pw_uid, entry.pw_gid)
