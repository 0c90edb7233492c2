# SPDX-License-Identifier: Apache-2.0
"""Checks of the libraries in use: what would be probed in each, what would not, and why.

One finding a file, however many processes have mapped it: the kernel probes files, not processes.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.holders import link_holders
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.library_scan import LibraryFile, Plan, Scan, User, scan_libraries
from hotstage.cli.doctor.peers import agent_coverage
from hotstage.cli.doctor.privileges import read_sets
from hotstage.cli.doctor.trials import agent_trials, trial_of
from hotstage.host.capabilities import held
from hotstage.probes.discovery.libraries import BEYOND_REACH

LIBS = Area.LIBRARIES
_SHOWN_USERS = 4
_SHOWN_NAMES = 6
_VERSION = re.compile(r"\.so\.(\d[\d.]*)$")
_TO_OPEN = "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; CAP_CHECKPOINT_RESTORE for deleted libraries"


def check_libraries(host: Host) -> Iterator[Finding]:
    scan = host.once(scan_libraries)
    yield _reach(host, scan)
    probed_by_agent = host.once(agent_coverage)
    if not scan.libraries:
        sure = " that this user can see" if scan.refused else ""
        yield Finding(
            LIBS, "in use", Status.OK, f"none now{sure}; hotstage attaches when a process opens one"
        )
    for file in scan.libraries:
        yield _file(host, file, probed_by_agent)
    yield from _not_covered(scan)


def _reach(host: Host, scan: Scan) -> Finding:
    """How far this look went. A process that is closed even to CAP_SYS_PTRACE is nobody's server."""
    sets = read_sets(host)
    may_look = sets is not None and "CAP_SYS_PTRACE" in held(sets.effective)
    is_kept_out = bool(scan.refused) and not may_look
    data = {
        "looked": scan.looked,
        "refused": len(scan.refused),
        "hanging": scan.hanging,
        "truncated": scan.truncated,
        "seconds": round(scan.seconds, 3),
    }
    parts = [f"looked into {plural(scan.looked, 'process')} in {scan.seconds * 1e3:.0f} ms"]
    if scan.refused:
        parts.append(f"not allowed to look into {len(scan.refused)} ({_named(scan.refused)})")
    if scan.hanging:
        parts.append(f"given up: {_named(scan.hanging)}")
    if scan.truncated:
        parts.append(f"mappings read in part only: {_named(scan.truncated)}")
    is_partial = is_kept_out or bool(scan.hanging or scan.truncated)
    return Finding(
        LIBS, "processes", Status.WARN if is_partial else Status.OK, "; ".join(parts),
        _to_reach(scan, is_kept_out=is_kept_out),
        features=("processes of other users",), data=data,
    )  # fmt: skip


def _to_reach(scan: Scan, *, is_kept_out: bool) -> str | None:
    """The remedy for what this look did not reach."""
    if is_kept_out:
        return "run as root, or with CAP_SYS_PTRACE"
    if scan.hanging:
        return "see what they wait for (`cat /proc/PID/stack`): mostly a network or FUSE mount that is gone"
    if scan.truncated:
        return "their libraries beyond that are not probed: see what fills their /proc/PID/maps"
    return None


def _file(host: Host, file: LibraryFile, probed_by_agent: frozenset[str] | None) -> Finding:
    version = _VERSION.search(file.path)
    data: dict[str, object] = {
        "path": file.path,
        "kind": file.kind,
        "version": version[1] if version else None,
        "users": [_user_data(user) for user in file.users],
        "problem": file.problem,
    }
    where = f"{file.path} in {_users(file.users)}"
    if file.plan is None:
        reason = file.problem or "it was not opened in time"
        return Finding(
            LIBS, file.kind, Status.WARN, f"{where}: {reason}", _TO_OPEN, features=("count calls",), data=data
        )
    plan = file.plan
    data |= {
        "build_id": plan.build_id,
        "symbols": plan.points,
        "emulated": plan.emulated,
        "calls": plan.calls,
        "calls_known": plan.calls_known,
        "not_probed": [{"symbol": miss.symbol, "reason": miss.reason} for miss in plan.missed],
        "is_probed": plan.is_patched,
        "is_deleted": plan.is_unlinked,
    }
    built = f", build-id {plan.build_id[:12]}" if plan.build_id else ", no build-id"
    status, told, remedy = _judge(host, plan, file, probed_by_agent)
    if plan.points:
        tried = trial_of(host, plan, host.once(agent_trials))
        data["trial"] = tried.data
        told = f"{told}; {tried.told}"
        if tried.is_refuted:
            status, remedy = (
                Status.WARN,
                remedy or "hotstage coverage --all shows it; report it with the build-id",
            )
    return Finding(LIBS, file.kind, status, f"{where}{built}: {told}", remedy, data=data)


def _judge(
    host: Host, plan: Plan, file: LibraryFile, probed_by_agent: frozenset[str] | None
) -> tuple[Status, str, str | None]:
    """What would be probed; the status and the remedy beside it."""
    if file.kind in BEYOND_REACH:
        return Status.ABSENT, BEYOND_REACH[file.kind], None
    if not plan.points:
        reasons = sorted({miss.reason for miss in plan.missed if not miss.is_expected})
        return (
            Status.WARN,
            f"none of its calls can be probed ({'; '.join(reasons)})",
            "see whether it is the real library, and of this release",
        )
    share = plan.emulated / plan.points
    parts = [
        f"{plan.calls} of {plan.calls_known} calls by {plan.points} symbols, {plan.emulated} of them on an"
        " emulated instruction"
    ]
    status, remedy = Status.OK, None
    if share < 0.98 and file.kind == "libcuda":
        parts.append(f"{plan.points - plan.emulated} are single-stepped, at about ten times the cost")
    unexpected = [miss for miss in plan.missed if not miss.is_expected]
    for reason in dict.fromkeys(miss.reason for miss in unexpected):
        parts.append(f"{reason}: {_named([miss.symbol for miss in unexpected if miss.reason == reason])}")
    if len(unexpected) < len(plan.missed):
        parts.append(f"{len(plan.missed) - len(unexpected)} not wanted, or newer than this library")
    if plan.is_unlinked or any(user.is_deleted for user in file.users):
        parts.append("its file is deleted: only processes that have it already are reached")
    if plan.is_patched is None:
        parts.append("whether it is probed already cannot be told (its memory may not be read)")
    elif plan.is_patched and probed_by_agent and plan.build_id in probed_by_agent:
        parts.append("probed by the running agent")
    elif plan.is_patched:
        who = _named(link_holders(host)) or "nobody that this user can see"
        parts.append(f"probed already, and not by the agent configured here; BPF links are held by {who}")
        status, remedy = Status.WARN, "end the other one: both count, and each call pays twice"
    return status, "; ".join(parts), remedy


def _not_covered(scan: Scan) -> Iterator[Finding]:
    """What no table can find: GPU users without a library, a runtime inside the program."""
    if scan.strangers:
        yield Finding(
            LIBS, "GPU users without a library", Status.WARN,
            f"hold an NVIDIA device and have mapped no library that is known: {', '.join(scan.strangers)}",
            "a fully static program, another vendor's library, or one that has not started CUDA yet",
            data={"processes": scan.strangers},
        )  # fmt: skip
    drivers = {user.pid for file in scan.libraries if file.kind == "libcuda" for user in file.users}
    runtimes = {user.pid for file in scan.libraries if file.kind == "libcudart" for user in file.users}
    static = sorted(drivers - runtimes)
    if static:
        pids = ", ".join(map(str, static[:_SHOWN_NAMES]))
        detail = (
            f"{plural(len(static), 'process')} without libcudart ({pids}): linked in or not used; either way"
            " its calls reach libcuda"
        )
        yield Finding(LIBS, "static runtime", Status.OK, detail, data={"pids": static})


def check_marks(host: Host) -> Iterator[Finding]:
    """The marks package here, and the processes that carry its library."""
    try:
        version = importlib.metadata.version("hotstage-marks")
    except importlib.metadata.PackageNotFoundError:
        version = None
    scan = host.once(scan_libraries)
    pids = sorted({user.pid for file in scan.libraries if file.kind == "marks" for user in file.users})
    data = {"version": version, "pids": pids}
    here = f"hotstage-marks {version} here" if version else "hotstage-marks is not installed here"
    if pids:
        shown = ", ".join(map(str, pids[:_SHOWN_NAMES]))
        yield Finding(
            LIBS,
            "hotstage-marks",
            Status.OK,
            f"{here}; its library is in {plural(len(pids), 'process')} ({shown})",
            data=data,
        )
    else:
        yield Finding(
            LIBS, "hotstage-marks", Status.ABSENT,
            f"{here}; no process has its library: stages come from nowhere else yet",
            "pip install hotstage-marks in the server's environment, and mark its stages",
            features=("stages and requests",), data=data,
        )  # fmt: skip


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _users(users: list[User]) -> str:
    shown = ", ".join(_who(user) for user in users[:_SHOWN_USERS])
    more = f" and {len(users) - _SHOWN_USERS} more" if len(users) > _SHOWN_USERS else ""
    return f"{plural(len(users), 'process')} ({shown}{more})"


def _who(user: User) -> str:
    place = f" in container {user.container}" if user.container else ""
    mounts = " with its own mounts" if user.own_mounts and not user.container else ""
    return f"{user.pid} {user.name}{place}{mounts}"


def _user_data(user: User) -> dict[str, object]:
    return {
        "pid": user.pid,
        "name": user.name,
        "container": user.container,
        "own_mounts": user.own_mounts,
        "is_deleted": user.is_deleted,
    }
