# SPDX-License-Identifier: Apache-2.0
"""`hotstage up`: agent, notifier and explorer on one host, each with no more privileges than it needs."""

from __future__ import annotations

import grp
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import click

from hotstage.cli import unprivileged
from hotstage.cli.client import AgentClient
from hotstage.cli.logs import start_logging
from hotstage.cli.reading import configuration
from hotstage.cli.supervisor import Child, Supervisor
from hotstage.clock import SystemClock
from hotstage.config.settings import Config
from hotstage.errors import HotstageError, PrivilegeError

_WATCH_SECONDS = 0.2

NEEDED_CAPABILITIES = {"CAP_BPF": 39, "CAP_PERFMON": 38}
"""By their numbers in linux/capability.h."""


@click.command()
@click.option("--loader", type=click.Choice(["auto", "libbpf", "bcc"]), help="Compiler of the call counters.")
def up(loader: str | None) -> None:
    """Start agent, notifier and explorer; Ctrl-C ends all.

    Notifier and explorer get no capability. They run as `hotstage` or `nobody` where that account can read
    this installation, and as uid 0 without capabilities where it cannot (root's home, for example).
    """
    config = configuration({("probes", "loader"): loader})
    start_logging(config.log, "up")
    require_root()
    root = click.get_current_context().find_root()
    sys.exit(run_until_signalled(config, root.obj.config_file, loader))


def require_root() -> None:
    """Raise PrivilegeError unless this process may start a privileged agent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    if not all(effective >> capability & 1 for capability in NEEDED_CAPABILITIES.values()):
        raise PrivilegeError(
            f"probes need root, or at least {' and '.join(NEEDED_CAPABILITIES)}",
            remedy="run it with sudo; in a container, add them",
        )


def run_until_signalled(config: Config, config_file: Path | None, loader: str | None) -> int:
    """Supervise until SIGINT or SIGTERM (0), or until the agent says that it cannot run here (its code)."""
    asked: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    supervisor = Supervisor(SystemClock())
    client = AgentClient(socket_path=config.http.socket)
    is_announced = False
    try:
        for child in children(config, config_file, loader):
            supervisor.start(child)
        while not asked:
            code = supervisor.watch()
            if code is not None:
                return code
            if not is_announced and _is_ready(client):
                is_announced = True
                _announce(config)
            time.sleep(_WATCH_SECONDS)
        return 0
    finally:
        supervisor.stop()


def _is_ready(client: AgentClient) -> bool:
    try:
        client.get("/readyz")
    except HotstageError:
        return False
    return True


def _announce(config: Config) -> None:
    """The addresses, once something answers there; and whose rights the unprivileged processes have."""
    entry = unprivileged.account()
    whose = (
        f"as {entry.pw_name}" if entry else "without any capability, but as uid 0: see `hotstage up --help`"
    )
    click.echo(f"explorer: http://{config.explore.listen}/   agent: http://{config.http.listen}/", err=True)
    click.echo(f"notifier and explorer run {whose}", err=True)


def children(config: Config, config_file: Path | None, loader: str | None) -> list[Child]:
    """Agent first: the others look for it and wait. Their state directories are made before privileges go."""
    hotstage = [sys.executable, "-m", "hotstage", *(["--config", str(config_file)] if config_file else [])]
    agent = [*hotstage, "agent", *(["--loader", loader] if loader else [])]
    _prepare_notifier(config)
    plain = unprivileged.command_prefix()
    return [
        Child("agent", agent, _socket_for_notifier(config), essential=True),
        Child("notify", [*plain, *hotstage, "notify"], {}),
        Child("explore", [*plain, *hotstage, "explore"], {}),
    ]


def _socket_for_notifier(config: Config) -> dict[str, str]:
    """The agent opens its socket to the group of the notifier's account, unless a group is configured."""
    entry = unprivileged.account()
    if entry is None or config.http.socket_group is not None:
        return {}
    return {"HOTSTAGE_HTTP_SOCKET_GROUP": grp.getgrgid(entry.pw_gid).gr_name}


def _prepare_notifier(config: Config) -> None:
    """The notifier's directory belongs to the account it will run as."""
    directory = Path(config.notify.directory)
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    entry = unprivileged.account()
    if entry is not None:
        os.chown(directory, entry.pw_uid, entry.pw_gid)
