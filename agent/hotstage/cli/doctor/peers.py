# SPDX-License-Identifier: Apache-2.0
"""Checks of hotstage's own processes on this host: a running agent, the service's units.

The agent is asked for its health and its coverage, with a deadline; systemd is asked for states only.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from hotstage.cli.client import AgentClient
from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.holders import link_holders
from hotstage.cli.doctor.host import Host
from hotstage.errors import HotstageError, PeerError, PrivilegeError

SERVICE = Area.SERVICE
UNITS = ("hotstage-agent.service", "hotstage-notify.service", "hotstage-explorer.service")
_ANSWER_SECONDS = 1.0
_TOLD_MAPS = 3
_SYSTEMCTL_SECONDS = 1.5
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "NRestarts")


def ask_agent(host: Host) -> dict[str, Any] | HotstageError:
    """A trial for `Host.once`: what the agent at the configured place says of itself, or why it does not."""
    client = AgentClient.of(host.config.http, timeout_seconds=_ANSWER_SECONDS)
    try:
        health = client.get("/healthz")
    except HotstageError as error:
        return error
    try:
        coverage = client.get("/v1/coverage")
    except HotstageError:  # open to other hosts, it tells that to those who have the token
        coverage = {}
    if not _is_coverage(coverage):
        return PeerError(
            f"{client.address} answers, but not like an agent of this version",
            remedy="is another program at http.listen or http.socket?",
        )
    return {"address": client.address, "health": health, "coverage": coverage}


def _is_coverage(body: dict[str, Any]) -> bool:
    """Whether the processes and libraries in it can be walked."""
    processes = body.get("processes", [])
    if not isinstance(processes, list) or not all(isinstance(each, dict) for each in processes):
        return False
    libraries = [each.get("libraries", []) for each in processes]
    return all(
        isinstance(each, list)
        and all(isinstance(library, dict) and _is_name(library.get("build_id")) for library in each)
        for each in libraries
    )


def _is_name(value: object) -> bool:
    return value is None or isinstance(value, str)


def agent_coverage(host: Host) -> frozenset[str] | None:
    """Build-ids of the libraries that the running agent has probed; None without an agent."""
    answer = host.once(ask_agent)
    if isinstance(answer, HotstageError):
        return None
    return frozenset(
        library["build_id"]
        for process in answer["coverage"].get("processes", [])
        for library in process.get("libraries", [])
        if library.get("state") in ("attached", "alias") and library.get("build_id")
    )


def check_agent(host: Host) -> Iterator[Finding]:
    answer = host.once(ask_agent)
    if isinstance(answer, PrivilegeError):
        yield Finding(SERVICE, "agent", Status.UNKNOWN, answer.message, answer.remedy)
        return
    if isinstance(answer, HotstageError):
        yield _no_agent(host, answer)
        return
    health, coverage = answer["health"], answer["coverage"]
    attached, emulated = coverage.get("attached", 0), coverage.get("emulated", 0)
    processes = len(coverage.get("processes", []))
    data = {
        "running": True,
        "address": answer["address"],
        "health": health.get("status"),
        "rung": coverage.get("rung"),
        "attached": attached,
        "processes": processes,
    }
    detail = (
        f"one runs at {answer['address']} and is {health.get('status')}: rung {coverage.get('rung')},"
        f" {attached} symbols probed ({emulated} emulated) in {plural(processes, 'process')}; a second one"
        " would count every call again"
    )
    is_well = health.get("status") == "ok"
    yield Finding(
        SERVICE, "agent", Status.OK if is_well else Status.WARN, detail,
        None if is_well else "hotstage coverage, and its log", data=data,
    )  # fmt: skip
    yield from _maps(coverage.get("map_bytes"))


def _maps(sizes: object) -> Iterator[Finding]:
    """What the agent's maps hold in the kernel, the largest first; nothing where it does not tell."""
    told_sizes = sizes if isinstance(sizes, dict) else {}
    known = {name: held for name, held in told_sizes.items() if isinstance(held, int)}
    if not known:
        return
    by_size = dict(sorted(known.items(), key=lambda item: -item[1]))
    largest = list(by_size.items())[:_TOLD_MAPS]
    told = ", ".join(f"{name} {held / (1 << 20):.1f}" for name, held in largest)
    total = sum(known.values()) / (1 << 20)
    detail = f"the agent's {len(known)} hold {total:.1f} MiB of kernel memory; the largest: {told}"
    yield Finding(SERVICE, "maps", Status.OK, detail, data={"bytes": sum(known.values()), "by_map": by_size})


def _no_agent(host: Host, why: HotstageError) -> Finding:
    """None where the configuration says; one elsewhere would count beside it."""
    elsewhere = [holder for holder in link_holders(host) if "hotstage" in holder]
    data = {"running": False, "elsewhere": elsewhere}
    if elsewhere:
        return Finding(
            SERVICE, "agent", Status.WARN, f"none is configured here, but probes are held by {elsewhere[0]}",
            "hotstage --config FILE doctor, with the configuration of that one", data=data,
        )  # fmt: skip
    return Finding(SERVICE, "agent", Status.ABSENT, f"none runs here: {why.message}", data=data)


def check_units(host: Host) -> Iterator[Finding]:
    """State of the units, where systemd runs."""
    systemctl = shutil.which("systemctl")
    if not (host.root / "run/systemd/system").is_dir() or systemctl is None:
        yield Finding(
            SERVICE, "systemd", Status.ABSENT, "does not run here: no units to look at", data={"runs": False}
        )
        return
    for unit in UNITS:
        yield _unit(systemctl, unit)


def _unit(systemctl: str, unit: str) -> Finding:
    command = [systemctl, "show", unit, f"--property={','.join(_PROPERTIES)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SYSTEMCTL_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(SERVICE, unit, Status.UNKNOWN, f"systemctl does not tell: {error}")
    return judge_unit(unit, dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line))


def judge_unit(unit: str, state: dict[str, str]) -> Finding:
    """One finding from `systemctl show`'s properties."""
    data = {key: state.get(key) for key in _PROPERTIES}
    if state.get("LoadState") == "not-found":
        return Finding(SERVICE, unit, Status.ABSENT, "not installed", "sudo make install", data=data)
    active = (
        f"{state.get('ActiveState')} ({state.get('SubState')}), {state.get('UnitFileState') or 'not enabled'}"
    )
    restarts = state.get("NRestarts") or "0"
    if state.get("ActiveState") == "failed":
        return Finding(
            SERVICE,
            unit,
            Status.WARN,
            f"{active}: {state.get('Result')}",
            f"journalctl -u {unit} -e",
            data=data,
        )
    if restarts not in ("", "0"):
        return Finding(
            SERVICE, unit, Status.WARN, f"{active}, started again {restarts} times",
            f"journalctl -u {unit} -e", data=data,
        )  # fmt: skip
    is_up = state.get("ActiveState") == "active"
    return Finding(
        SERVICE, unit, Status.OK if is_up else Status.ABSENT, active,
        None if is_up else f"systemctl enable --now {unit}", data=data,
    )  # fmt: skip
