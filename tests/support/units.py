# SPDX-License-Identifier: Apache-2.0
"""The unit files, run as systemd would: their command under exactly their capabilities, account and groups,
in a mount namespace with their directories, beside a notify socket that stands for the manager.

What systemd alone can do (its seccomp filters, cgroup limits, dynamic accounts) is not done here.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotstage.probes.loader.bindings import find_headers

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy/systemd"
PREFIX = Path("/opt/hotstage")
ACCOUNTS = {"hotstage": 61_301, "hotstage-notify": 61_302, "hotstage-explorer": 61_303}
"""Numbers that nobody has here: a dynamic account is one that exists while its unit runs."""
WATCHDOG_SECONDS = 3.0
SAID_SECONDS = 20.0
TRACEFS = Path("/sys/kernel/tracing")


@dataclass(frozen=True)
class Unit:
    """A unit file's [Service] section: key → values, a list since keys may be repeated."""

    name: str
    values: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, name: str, *drop_ins: str) -> Unit:
        """With the drop-ins of that name behind it."""
        values: dict[str, list[str]] = {}
        for file in (f"{name}.service", *(f"drop-ins/{each}.conf" for each in drop_ins)):
            section = ""
            for line in (UNITS / file).read_text(encoding="utf-8").splitlines():
                if line.startswith("["):
                    section = line
                elif section == "[Service]" and "=" in line and not line.startswith("#"):
                    key, _, value = line.partition("=")
                    values.setdefault(key, []).append(value)
        return cls(name, values)

    def one(self, key: str) -> str:
        (value,) = self.values[key]
        return value

    def is_set(self, key: str) -> bool:
        return self.values.get(key, ["no"])[-1] not in ("no", "")

    @property
    def capabilities(self) -> list[str]:
        """Of the bounding set, which the ambient set equals, as setpriv names them."""
        assert self.values["CapabilityBoundingSet"] == self.values["AmbientCapabilities"]
        names = " ".join(self.values["CapabilityBoundingSet"]).split()
        return [name.removeprefix("CAP_").lower() for name in names]


class Manager:
    """The manager's end of the notify socket: every message, in order, as a dict."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        path.chmod(0o777)
        self.heard: list[dict[str, str]] = []

    def wait_for(self, key: str, seconds: float = SAID_SECONDS) -> dict[str, str]:
        """The next message that has `key`; those before it are in `heard` too."""
        deadline = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                message = self.socket.recv(4096).decode()
            except TimeoutError:
                raise AssertionError(f"no {key} within {seconds:g} s; heard: {self.heard}") from None
            self.heard.append(dict(line.split("=", 1) for line in message.split("\n")))
            if key in self.heard[-1]:
                return self.heard[-1]

    def wait_for_status(self, part: str) -> None:
        """Until a status has `part`."""
        while part not in self.wait_for("STATUS")["STATUS"]:
            pass

    def close(self) -> None:
        self.socket.close()


@dataclass
class Service:
    """A running unit."""

    unit: Unit
    process: subprocess.Popen[bytes]
    manager: Manager
    log: Path
    scratch: Path
    shared: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def reload(self) -> None:
        """What ExecReload= says, which is to send SIGHUP."""
        assert self.unit.one("ExecReload") == "/bin/kill -HUP $MAINPID"
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> float:
        """SIGTERM → seconds until it had ended with status 0; fails after TimeoutStopSec."""
        began = time.monotonic()
        self.process.terminate()
        code = self.process.wait(float(self.unit.one("TimeoutStopSec")))
        assert code == 0, f"{self.unit.name} ended with {code}:\n{self.text()}"
        return time.monotonic() - began

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def running(
    unit: Unit,
    destdir: Path,
    scratch: Path,
    environment: Mapping[str, str],
    *,
    shared: Path | None = None,
    without: Sequence[str] = (),
) -> Iterator[Service]:
    """The unit's command from the installation below `destdir`, until the block ends.

    `shared` is /run/hotstage, the agent's if there is one; `without` names capabilities to leave out.
    """
    scratch.mkdir()
    scratch.chmod(0o755)
    if shared is None:
        shared = scratch / "run"
        shared.mkdir()
        if unit.is_set("RuntimeDirectory"):
            shared.chmod(int(unit.one("RuntimeDirectoryMode"), 8))
            os.chown(shared, ACCOUNTS[unit.one("User")], ACCOUNTS[unit.one("User")])
    manager = Manager(scratch / "notify")
    log = scratch / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(unit, destdir, scratch, shared, without=without),
            env=_environment(unit, manager, environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield Service(unit, process, manager, log, scratch, shared)
    finally:
        process.kill()
        process.wait(10)
        manager.close()


def command(
    unit: Unit, destdir: Path, scratch: Path, shared: Path, *, without: Sequence[str] = ()
) -> list[str]:
    """Mounts, then privileges, then ExecStart=: each becomes the next, so that the pid is the service's."""
    capabilities = [name for name in unit.capabilities if name not in without]
    account = ACCOUNTS[unit.one("User")]
    groups = [ACCOUNTS[name] for name in unit.values.get("SupplementaryGroups", [])]
    grant = ",".join(f"+{name}" for name in capabilities)
    privileges = [
        "setpriv", f"--reuid={account}", f"--regid={account}",
        f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups",
        f"--bounding-set=-all{',' * bool(grant)}{grant}",
        f"--inh-caps=-all{',' * bool(grant)}{grant}",
        f"--ambient-caps=-all{',' * bool(grant)}{grant}",
        *(["--no-new-privs"] if unit.is_set("NoNewPrivileges") else []),
    ]  # fmt: skip
    steps = [
        *_mounts(unit, destdir, scratch, shared),
        "exec " + shlex.join([*privileges, *_exec_start(unit)]),
    ]
    return ["unshare", "--mount", "sh", "-ec", f"umask {unit.one('UMask')}\n" + "\n".join(steps)]


def _exec_start(unit: Unit) -> list[str]:
    return shlex.split(unit.one("ExecStart"))


def _mounts(unit: Unit, destdir: Path, scratch: Path, shared: Path) -> list[str]:
    """The installation at its place, the unit's directories with their modes, and a host's own mounts."""
    steps = ["mount -t tmpfs tmpfs /opt", f"mkdir {PREFIX}", f"mount --bind {destdir}{PREFIX} {PREFIX}"]
    (scratch / "work").mkdir()
    layers = f"lowerdir=/etc,upperdir={_etc(scratch)},workdir={scratch}/work"
    steps += [f"mount -t overlay -o {layers} overlay /etc", "mount -t tmpfs tmpfs /var/lib"]
    steps += ["mount -t tmpfs tmpfs /run", "mkdir -p /run/hotstage", f"mount --bind {shared} /run/hotstage"]
    if unit.is_set("StateDirectory"):
        state = f"/var/lib/{unit.one('StateDirectory')}"
        account = ACCOUNTS[unit.one("User")]
        steps += [f"mkdir -m {unit.one('StateDirectoryMode')} {state}", f"chown {account}:{account} {state}"]
    steps += [*_tracefs_and_headers(), f"mount -o bind,ro,remount {TRACEFS}"]
    proc = f"hidepid={unit.one('ProtectProc')}"
    if unit.values.get("ProcSubset") == ["pid"]:
        proc += ",subset=pid"
    return [*steps, f"mount -t proc -o {proc} proc /proc"]


def _etc(scratch: Path) -> Path:
    """What lies over /etc: the accounts, and the configuration as `make install` leaves it."""
    etc = scratch / "etc"
    (etc / "hotstage").mkdir(parents=True)
    for name in ("passwd", "group"):
        lines = Path("/etc", name).read_text().splitlines()
        lines += [
            f"{n}:x:{i}:{i}::/nonexistent:/usr/sbin/nologin" if name == "passwd" else f"{n}:x:{i}:"
            for n, i in ACCOUNTS.items()
        ]
        (etc / name).write_text("\n".join(lines) + "\n")
    configure(scratch, "")
    for place in (etc, etc / "hotstage"):
        place.chmod(0o755)
    return etc


def configure(scratch: Path, text: str) -> None:
    """Write the unit's /etc/hotstage/config.toml: root's, readable to the group, as installed."""
    settings = scratch / "etc/hotstage/config.toml"
    settings.write_text(text)
    os.chown(settings, 0, ACCOUNTS["hotstage"])
    settings.chmod(0o640)


def _tracefs_and_headers() -> list[str]:
    """What every host with systemd has mounted, and this kernel's headers where bcc looks for them."""
    steps = [] if (TRACEFS / "events").is_dir() else [f"mount -t tracefs tracefs {TRACEFS}"]
    headers, own = find_headers(), Path("/lib/modules") / platform.release()
    if headers is not None and headers.build is not None and not (own / "build").exists():
        steps += ["mount -t tmpfs tmpfs /lib/modules", f"mkdir {own}"]
        steps += [f"ln -s {headers.build} {own}/build", f"ln -s {headers.source} {own}/source"]
    return steps


def _environment(unit: Unit, manager: Manager, more: Mapping[str, str]) -> dict[str, str]:
    """What the manager gives: little, and nothing of this process's own."""
    own = dict(pair.split("=", 1) for pair in unit.values.get("Environment", []))
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "NOTIFY_SOCKET": str(manager.path),
        "WATCHDOG_USEC": str(round(WATCHDOG_SECONDS * 1e6)),
        **own,
        **more,
    }
