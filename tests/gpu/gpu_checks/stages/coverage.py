# SPDX-License-Identifier: Apache-2.0
"""Stage `coverage`: which catalogued calls the driver has, where they are probed, whether they fire."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gpu_checks.agent import Agent, running_agent
from gpu_checks.bystanders import Bystanders
from gpu_checks.libcuda import Libcuda
from gpu_checks.programs.exercises import NEVER_CALLED, exercise_of
from gpu_checks.report import Section
from gpu_checks.surroundings import Surroundings
from gpu_checks.tallies import CALL_OF, by_call
from gpu_checks.target import Target, TargetError
from hotstage.probes.discovery.libraries import KINDS

EMULATED_GOAL = 0.98
START_SECONDS, ATTACH_SECONDS = 1.5, 0.5
WATCHED_SECONDS = 24.0
"""How long others are watched: long enough for two rounds of what comes every ten seconds."""


def coverage(at: Surroundings, section: Section) -> None:
    doctor(at, section)
    with ExitStack() as stack:
        bystanders = stack.enter_context(Bystanders())
        agent = stack.enter_context(running_agent(at.agent_environment, at.agent_log))
        began = time.monotonic()
        target = stack.enter_context(
            Target(at.driver_python, "driver_calls", environment=at.program_environment, log=at.programs_log)
        )
        mapped_ns = target.tell("start")["mapped_ns"]
        attached = agent.wait_attached(target.pid)
        in_time(agent, attached["since_ns"] - mapped_ns, section)
        libcuda = Libcuda.read(mapped_libcuda(target.pid))
        attachment(agent, attached, libcuda, section)
        placement(libcuda, section)
        target.tell("open", within_seconds=60)
        firing(agent, target, libcuda, section)
        if not at.is_dry_run:
            time.sleep(max(0.0, WATCHED_SECONDS - (time.monotonic() - began)))
        others(agent, bystanders, target.pid, section)


def doctor(at: Surroundings, section: Section) -> None:
    """What `hotstage doctor` says of this host."""
    done = subprocess.run(
        [sys.executable, "-m", "hotstage", "doctor", "--json"],
        env=dict(at.agent_environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        section.check("doctor answers", False, done.stderr.strip()[-400:])
        return
    section.check("doctor says that hotstage runs here", done.returncode == 0, f"status {report['status']}")
    section.table("doctor", report["findings"])


def mapped_libcuda(pid: int) -> Path:
    """The file of libcuda that a process has mapped, as this process can open it."""
    pattern = dict(KINDS)["libcuda"]
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path and pattern.search("/" + path):
            return Path(f"/proc/{pid}/root") / path
    raise TargetError(f"process {pid} has mapped no libcuda")


def attachment(agent: Agent, attached: Any, libcuda: Libcuda, section: Section) -> None:
    body = agent.coverage()
    exported = [symbol for symbol in CALL_OF if symbol in libcuda.elf.functions]
    offsets = {libcuda.elf.functions[symbol].offset for symbol in exported}
    section.check(
        "every catalogued symbol that the driver exports is attached",
        attached["attached"] == len(offsets),
        f"{attached['attached']} attached, {len(exported)} exported at {len(offsets)} addresses",
    )
    section.figure("rung", body["rung"], "", "the best that the kernel takes")
    section.figure("attached_symbols", attached["attached"], "", "catalogued and exported, one per address")
    section.figure("emulated_symbols", attached["emulated"], "", "of these, on an emulated instruction")
    section.table("missed", body["missed"])
    section.table("refused_rungs", body["refused_rungs"])


def in_time(agent: Agent, delay_ns: int, section: Section) -> None:
    """How long the agent took to be ready, and to attach to a process that came later."""
    start, delay = agent.coverage()["start_seconds"], delay_ns / 1e9
    section.check("the agent starts in time", start <= START_SECONDS, f"{start:.2f} s of {START_SECONDS:g} s")
    section.check(
        "a new process is attached in time", delay <= ATTACH_SECONDS, f"{delay:.3f} s of {ATTACH_SECONDS:g} s"
    )
    section.figure("start_to_attached", start, "s", "the agent's own measure, from its start to all attached")
    section.figure("mapped_to_attached", delay, "s", "from dlopen returning in a new process to all attached")


def placement(libcuda: Libcuda, section: Section) -> None:
    rows = libcuda.placements()
    exported = [row for row in rows if row["exported"]]
    emulated = sum(row["emulated"] for row in exported)
    share = emulated / max(len(exported), 1)
    unknown = [row["symbol"] for row in exported if not row["emulated"]]
    section.check(
        f"at least {EMULATED_GOAL:.0%} of the probes stand on an emulated instruction",
        share >= EMULATED_GOAL,
        f"{emulated} of {len(exported)}; unknown patterns: {', '.join(unknown) or 'none'}",
    )
    section.figure("emulated_share", share, "ratio", "catalogued symbols that the driver exports")
    section.figure("exports", len(libcuda.heads), "", "functions that the driver exports")
    section.figure("absent_symbols", len(rows) - len(exported), "", "catalogued, not exported by this driver")
    section.table("placements", rows)
    section.table("patterns_of_all_exports", libcuda.patterns())
    section.table("starts_of_all_exports", libcuda.starts())


def firing(agent: Agent, target: Target, libcuda: Libcuda, section: Section) -> None:
    """Use each symbol once; what was counted must be what was made, for it and for all that it needed."""
    rows: list[dict[str, Any]] = []
    made: Counter[str] = by_call(target.tell("tally")["made"])
    counted = agent.counts(target.pid)
    section.check("the first calls of the process are counted", counted == made, difference(made, counted))
    for symbol in CALL_OF:
        if symbol not in libcuda.elf.functions or exercise_of(symbol) is None:
            continue
        error = use(target, symbol)
        made_now, counted_now = by_call(target.tell("tally")["made"]), agent.counts(target.pid)
        call = CALL_OF[symbol]
        rows.append(
            {
                "symbol": symbol,
                "made": made_now[call] - made[call],
                "counted": counted_now[call] - counted[call],
                "others_agree": made_now == counted_now,
                "error": error,
            }
        )
        made, counted = made_now, counted_now
    fired = [row for row in rows if row["counted"] == row["made"] > 0]
    silent = [row["symbol"] for row in rows if row["made"] > row["counted"]]
    broken = [f"{row['symbol']}: {row['error']}" for row in rows if row["error"]]
    section.check("each probe fires exactly once a call", not silent and bool(fired), f"silent: {silent}")
    section.check("nothing else is counted", made == counted, difference(made, counted))
    if broken:
        section.not_run("some symbols could not be used here", "; ".join(broken))
    section.figure("fired_symbols", len(fired), "", "symbols called and counted as called")
    section.table("fired", rows)
    section.table("never_called", NEVER_CALLED)


def use(target: Target, symbol: str) -> str | None:
    """Have the program use it; the reason when it could not."""
    try:
        target.tell("exercise", symbol=symbol)
    except TargetError as error:
        if target.process.poll() is not None:
            raise
        return str(error)
    return None


def difference(made: Counter[str], counted: Counter[str]) -> str:
    """Where two tallies differ, in words; `equal` when they do not."""
    names = sorted(name for name in {*made, *counted} if made[name] != counted[name])
    return "; ".join(f"{name}: made {made[name]}, counted {counted[name]}" for name in names) or "equal"


def others(agent: Agent, bystanders: Bystanders, own_pid: int, section: Section) -> None:
    """Every other process in which the agent found CUDA: who it is, and whose child."""
    body = agent.coverage()
    section.figure("xid_watch", body["xid"]["state"], "", f"through {body['xid']['through']}")
    pids = {process["pid"] for process in body["processes"]} | {epoch["pid"] for epoch in body["epochs"]}
    calls = body["calls"]["by_pid"]
    rows = [
        {
            **bystanders.known(pid),
            "counted": sum(each["counted"] for each in calls.get(str(pid), {}).values()),
        }
        for pid in sorted(pids - {own_pid})
    ]
    for row in rows:
        row.pop("looks", None)
        row["is_child_of_agent"] = row["parent_pid"] == agent.pid
    section.table("other_cuda_processes", rows)
    section.figure(
        "other_cuda_processes", len(rows), "", "seen by the agent in this stage, gone ones included"
    )
