# SPDX-License-Identifier: Apache-2.0
"""The three units as they are installed: what each command does under exactly its account and capabilities.

They run from a real installation below a folder; systemd itself judges the files. Figures are printed.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.units import ACCOUNTS, UNITS, WATCHDOG_SECONDS, Service, Unit, configure, running

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NAMES = ("hotstage-agent", "hotstage-notify", "hotstage-explorer")
EXPOSURE_LIMITS = {"hotstage-agent": 4.0, "hotstage-notify": 2.0, "hotstage-explorer": 2.0}
TARGET_UID = 61_400
"""Whose server is watched: neither root nor any account of ours."""
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DESTINATION = """
[[notify.destinations]]
name = "hook"
url = "http://127.0.0.1:{port}/"
secret_file = "/etc/hotstage/secret"
"""
LIBRARY = """
	.text
	.globl	cuLaunchKernel
	.type	cuLaunchKernel, @function
cuLaunchKernel:
	push	%rbp
	mov	%rsp, %rbp
	xor	%eax, %eax
	pop	%rbp
	ret
	.size	cuLaunchKernel, . - cuLaunchKernel
	.section .note.GNU-stack,"",@progbits
"""
TARGET = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
if sys.argv[2:] == ["delete"]:
    os.unlink(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        library.cuLaunchKernel()
    print("done", flush=True)
"""


class Target:
    """A process of another account, with a library that only that account may read."""

    def __init__(self, folder: Path, *, deletes: bool = False) -> None:
        folder.mkdir()
        (folder / "library.S").write_text(LIBRARY + f'\t.section .rodata\n\t.ascii "{folder}"\n')
        library = folder / "libcuda.so.1"
        build = ["gcc", "-shared", "-Wl,--build-id", "-Wl,-soname,libcuda.so.1", "-o", library]
        subprocess.run([*build, folder / "library.S"], check=True, timeout=60)
        for path in (library, folder):
            os.chown(path, TARGET_UID, TARGET_UID)
            path.chmod(0o700)
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={TARGET_UID}", f"--regid={TARGET_UID}", "--clear-groups",
             "/usr/bin/python3", "-S", "-c", TARGET, library, *(["delete"] if deletes else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "open\n"

    def launch(self, times: int) -> None:
        self.process.stdin.write(f"{times}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture
def place(installed: Path) -> Iterator[Path]:
    """A folder that every account may enter, as no folder of pytest's is."""
    folder = installed.parent / "run"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start_target(place: Path) -> Iterator[Callable[..., Target]]:
    started: list[Target] = []

    def start(**how: Any) -> Target:
        started.append(Target(place / f"target{len(started)}", **how))
        return started[-1]

    yield start
    for target in started:
        target.end()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def listening(section: str, port: int) -> dict[str, str]:
    return {f"HOTSTAGE_{section}_LISTEN": f"127.0.0.1:{port}"}


def asked(agent: Service, path: str) -> bytes:
    """What the agent's socket answers."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(str(agent.shared / "agent.sock"))
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def coverage(agent: Service) -> Any:
    return json.loads(asked(agent, "/v1/coverage"))


def launches_of(agent: Service, target: Target) -> int:
    calls = coverage(agent)["calls"]["by_pid"].get(str(target.pid), {})
    return calls.get("cuLaunchKernel", {}).get("counted", 0)


def states_of(agent: Service, targets: dict[str, Target]) -> dict[str, str]:
    """Target → state of its library; other servers of this machine are none of this test's business."""
    seen = {each["pid"]: each["libraries"][0]["state"] for each in coverage(agent)["processes"]}
    return {name: seen[target.pid] for name, target in targets.items() if target.pid in seen}


def held(pid: int, name: str) -> int:
    """A capability set of a process, or whether it has no_new_privs."""
    return int(re.search(rf"^{name}:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1], 16)


# ---- the files


@pytest.mark.parametrize("name", NAMES)
def test_systemd_finds_nothing_wrong(installed: Path, name: str, tmp_path: Path) -> None:
    # Its command is looked for at its place, where nothing is installed on this machine.
    (tmp_path / f"{name}.service").write_text(
        (UNITS / f"{name}.service").read_text().replace("/opt/hotstage", f"{installed}/opt/hotstage")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / f"{name}.service"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if name in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_exposure_is_below_its_limit(name: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", UNITS / f"{name}.service"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    exposure = float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)[1])
    print(f"{name}: exposure {exposure}, limit {EXPOSURE_LIMITS[name]}")
    assert exposure <= EXPOSURE_LIMITS[name]


# ---- the agent


def test_the_agent_counts_servers_of_another_account_with_five_capabilities(
    installed, place, start_target, until
):
    private, deleted = start_target(), start_target(deletes=True)
    unit = Unit.read("hotstage-agent")
    with running(unit, installed, place / "agent", listening("HTTP", free_port())) as agent:
        ready = agent.manager.wait_for("READY")
        points, processes = re.match(
            r"attached: (\d+) points in (\d+) processes, rung", ready["STATUS"]
        ).groups()
        assert int(points) >= 2
        assert int(processes) >= 2
        assert [held(agent.pid, name) for name in ("CapEff", "CapBnd", "CapAmb")] == [0x1C000080004] * 3
        assert held(agent.pid, "NoNewPrivs") == 1
        assert Path(f"/proc/{agent.pid}").stat().st_uid == ACCOUNTS["hotstage"]
        private.launch(101)
        deleted.launch(53)
        assert (launches_of(agent, private), launches_of(agent, deleted)) == (101, 53)
        agent.manager.wait_for_status("kernel log through bcc")
        began = time.monotonic()
        for _ in range(3):
            agent.manager.wait_for("WATCHDOG")
        assert time.monotonic() - began < WATCHDOG_SECONDS
        page = agent.shared / "breakers"
        assert page.stat().st_mode & 0o777 == 0o644
        assert (agent.shared / "agent.sock").stat().st_mode & 0o777 == 0o660
        assert agent.stop() < 5
        agent.manager.wait_for("STOPPING")
        assert page.exists()


@pytest.mark.parametrize("capability", ["bpf", "perfmon"])
def test_without_it_the_agent_ends_at_once_and_says_so(installed, place, capability):
    unit = Unit.read("hotstage-agent")
    address = listening("HTTP", free_port())
    with running(unit, installed, place / "agent", address, without=[capability]) as agent:
        assert agent.process.wait(20) == 5
        assert "CAP_BPF and CAP_PERFMON" in agent.text()
    assert "5" in unit.one("RestartPreventExitStatus").split()


@pytest.mark.parametrize(
    ("capability", "seen"),
    [
        ("sys_ptrace", {}),
        ("dac_read_search", {"private": "failed", "deleted": "failed"}),
        ("checkpoint_restore", {"private": "attached", "deleted": "failed"}),
    ],
)
def test_without_it_the_agent_sees_less(installed, place, start_target, capability, seen):
    targets = {"private": start_target(), "deleted": start_target(deletes=True)}
    unit = Unit.read("hotstage-agent")
    address = listening("HTTP", free_port())
    with running(unit, installed, place / "agent", address, without=[capability]) as agent:
        agent.manager.wait_for("READY")
        assert states_of(agent, targets) == seen


@pytest.mark.long
def test_the_drop_in_for_old_kernels_gives_what_their_links_need(installed, place, start_target):
    """Half a minute: each link of rung P is let go by itself. Doctor's tests tell what it needs."""
    target, environment = start_target(), listening("HTTP", free_port()) | {"HOTSTAGE_PROBES_RUNG": "P"}
    with running(Unit.read("hotstage-agent"), installed, place / "bare", environment) as agent:
        assert agent.process.wait(20) == 5
        assert "grant CAP_SYS_ADMIN" in agent.text()
    old = Unit.read("hotstage-agent", "old-kernel")
    with running(old, installed, place / "agent", environment) as agent:
        assert "rung P" in agent.manager.wait_for("READY")["STATUS"]
        target.launch(11)
        assert launches_of(agent, target) == 11
        agent.stop()


def test_the_agent_reloads_all_of_its_configuration_or_nothing(installed, place):
    unit = Unit.read("hotstage-agent")
    with running(unit, installed, place / "agent", listening("HTTP", free_port())) as agent:
        agent.manager.wait_for("READY")
        configure(agent.scratch, "[breakers]\nenforced = true\n[windows]\nmax_opem = 3\n")
        agent.reload()
        agent.manager.wait_for("RELOADING")
        assert "has no key `max_opem`" in agent.manager.wait_for("READY")["STATUS"]
        assert b"hotstage_config_last_reload_successful 0.0" in asked(agent, "/metrics")
        configure(agent.scratch, "[windows]\nmax_open = 3\n[store]\nretention_days = 2.0\n")
        agent.reload()
        assert int(agent.manager.wait_for("RELOADING")["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert "needs a restart: store.retention_days" in agent.manager.wait_for("READY")["STATUS"]
        assert re.search(r'configuration reloaded .*taken=\["windows.max_open"\]', agent.text())


# ---- the others, without any capability


def test_the_notifier_delivers_what_the_agents_socket_gives_its_group(installed, place, receive, until):
    receiver = receive()
    units = [Unit.read(name) for name in ("hotstage-agent", "hotstage-notify")]
    assert units[1].values["SupplementaryGroups"] == [units[0].one("Group")]
    with (
        running(units[0], installed, place / "agent", listening("HTTP", free_port())) as agent,
        running(units[1], installed, place / "notify", {}, shared=agent.shared) as notifier,
    ):
        assert notifier.manager.wait_for("READY")["STATUS"] == "no destination is configured"
        secret = notifier.scratch / "etc/hotstage/secret"
        secret.write_text(SECRET)
        os.chown(secret, 0, ACCOUNTS["hotstage"])
        secret.chmod(0o640)
        settings = DESTINATION.format(port=receiver.port)
        configure(notifier.scratch, settings)
        notifier.reload()
        notifier.manager.wait_for("RELOADING")
        assert notifier.manager.wait_for("READY")["STATUS"] == "delivering to hook"
        assert [held(notifier.pid, name) for name in ("CapPrm", "CapBnd", "CapAmb")] == [0, 0, 0]
        agent.manager.wait_for_status("kernel log through")
        Path("/dev/kmsg").write_text("NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus.\n")
        until(lambda: any(d.verified for d in receiver.deliveries), "the window of an XID at the receiver")
        notifier.manager.wait_for("WATCHDOG")
        configure(notifier.scratch, settings.replace("http:", "gopher:"))
        notifier.reload()
        notifier.manager.wait_for("RELOADING")
        assert "delivering to hook; not reloaded: " in notifier.manager.wait_for("READY")["STATUS"]
        notifier.stop()
        notifier.manager.wait_for("STOPPING")


def test_the_explorer_is_ready_when_its_page_answers(installed, place):
    port = free_port()
    unit = Unit.read("hotstage-explorer")
    with running(unit, installed, place / "explorer", listening("EXPLORE", port)) as explorer:
        assert f"http://127.0.0.1:{port}/" in explorer.manager.wait_for("READY")["STATUS"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
        explorer.manager.wait_for("WATCHDOG")
        explorer.manager.wait_for("WATCHDOG")
        assert [held(explorer.pid, name) for name in ("CapPrm", "CapBnd", "CapAmb")] == [0, 0, 0]
        explorer.stop()
        explorer.manager.wait_for("STOPPING")
