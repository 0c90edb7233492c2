# SPDX-License-Identifier: Apache-2.0
"""Stage `counts`: what was made, what was counted, what CUPTI saw, call by call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_checks.agent import Agent, running_agent
from gpu_checks.report import Section
from gpu_checks.surroundings import Surroundings, compile_helper, cupti_includes
from gpu_checks.tallies import CALL_OF, CuptiTally, by_call, read_cupti, rows
from gpu_checks.target import Target, TargetError, wait_until

THREADS, LAUNCHES, COPIES = 4, 20_010, 211
"""In each thread; uneven numbers, so that a lost or doubled call shows."""
FAILED_ALLOCATIONS, FAILED_FREES = 13, 7
MATMULS, TENSOR_COPIES, REPLAYS = 2003, 101, 503
SMALL = 20
"""A dry run makes this many times fewer launches."""


def counts(at: Surroundings, section: Section) -> None:
    injection, reason = build_injection(at, section)
    with running_agent(at.agent_environment, at.agent_log) as agent:
        driver_calls(at, agent, section, "driver", None)
        if injection is not None:
            driver_calls(at, agent, section, "driver with CUPTI", injection)
        else:
            section.not_run("driver calls against CUPTI", reason)
        if at.torch_python is None:
            section.not_run("PyTorch's calls", "no interpreter here has PyTorch")
        else:
            torch_calls(at, agent, section, injection)
        nothing_lost(agent, section)


def build_injection(at: Surroundings, section: Section) -> tuple[Path | None, str]:
    """The library that counts by CUPTI, or None and the reason."""
    if at.cupti is None:
        return None, "no libcupti is installed"
    output = at.scratch / "libcupti_counts.so"
    includes = cupti_includes(at.cupti)
    if includes:
        refused = compile_helper("cupti_counts.c", output, "-DHOTSTAGE_CUPTI_HEADERS", *includes)
        if refused is None or "static assertion" in refused:
            section.check("the declarations agree with cupti.h", refused is None, refused or includes[0])
        else:
            section.not_run("the declarations agree with cupti.h", refused)
    else:
        section.not_run("the declarations agree with cupti.h", "no cupti.h is installed")
    reason = compile_helper("cupti_counts.c", output)
    section.figure("cupti", str(at.cupti), "", "the library that gives the second count")
    return (output, "") if reason is None else (None, reason)


def injected(at: Surroundings, injection: Path | None, name: str) -> tuple[dict[str, str], Path]:
    """The environment of a program, and where CUPTI's counts of it will stand."""
    counts_file = at.scratch / f"cupti-{name.replace(' ', '-')}.txt"
    environment = dict(at.program_environment)
    if injection is not None:
        environment |= {
            "CUDA_INJECTION64_PATH": str(injection),
            "HOTSTAGE_CUPTI_LIBRARY": str(at.cupti),
            "HOTSTAGE_CUPTI_COUNTS": str(counts_file),
        }
    return environment, counts_file


def driver_calls(at: Surroundings, agent: Agent, section: Section, name: str, injection: Path | None) -> None:
    """A program that tallies its own calls, from several threads, with calls that fail."""
    environment, counts_file = injected(at, injection, name)
    with Target(at.driver_python, "driver_calls", environment=environment, log=at.programs_log) as target:
        target.tell("start")
        agent.wait_attached(target.pid)
        target.tell("open", within_seconds=60)
        failing = failed_calls(agent)
        target.tell("fail", allocations=FAILED_ALLOCATIONS, frees=FAILED_FREES)
        launches = LAUNCHES // SMALL if at.is_dry_run else LAUNCHES
        target.tell("load", threads=THREADS, launches=launches // 10 * 10, copies=COPIES, within_seconds=60)
        answer = target.tell("cupti")
        seen = seen_by_cupti(section, name, answer["written"], counts_file)
        compare(section, name, agent.counts(target.pid), by_call(answer["made"]), seen)
        errors_arrive(agent, section, name, failing)


def failed_calls(agent: Agent) -> dict[str, float]:
    """Calls that answered an error so far, by call."""
    found: dict[str, float] = {}
    for labels, value in agent.metric("hotstage_call_errors_total").items():
        call = dict(labels)["call"]
        found[call] = found.get(call, 0.0) + value
    return found


def errors_arrive(agent: Agent, section: Section, name: str, before: Mapping[str, float]) -> None:
    expected = {"cuMemAlloc_v2": FAILED_ALLOCATIONS, "cuMemFree_v2": FAILED_FREES}

    def told() -> bool:
        now = failed_calls(agent)
        return all(now.get(call, 0) - before.get(call, 0) == count for call, count in expected.items())

    try:
        wait_until(told, "errors", 4.0, pause=0.2)
        section.check(f"{name}: calls that fail are counted as errors", True, str(expected))
    except TargetError:
        section.check(
            f"{name}: calls that fail are counted as errors", False, f"{expected}, had {failed_calls(agent)}"
        )


def seen_by_cupti(section: Section, name: str, written: bool | None, counts_file: Path) -> CuptiTally | None:
    """CUPTI's counts, or None where it was not asked or did not work (which is a failure)."""
    if written is None:
        return None
    found = read_cupti(counts_file.read_text()) if written and counts_file.exists() else None
    works = found is not None and found.status == 0 and found.beyond == 0
    detail = (
        "no counts were written"
        if found is None
        else f"status {found.status}, {found.beyond} beyond its table"
    )
    section.check(f"{name}: CUPTI counts", works, detail)
    return found if works else None


def torch_calls(at: Surroundings, agent: Agent, section: Section, injection: Path | None) -> None:
    """PyTorch in phases; each is compared with CUPTI, and with what a phase must have made for certain."""
    assert at.torch_python is not None
    environment, counts_file = injected(at, injection, "torch")
    phases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("matmuls", {"times": MATMULS}),
        ("copies", {"times": TENSOR_COPIES}),
        ("graphs", {"times": REPLAYS}),
        ("refuse", {}),
    )
    with Target(at.torch_python, "torch_calls", environment=environment, log=at.programs_log) as target:
        target.tell("start", within_seconds=90)
        agent.wait_attached(target.pid)
        before = agent.counts(target.pid)
        for phase, arguments in phases:
            answer = target.tell(phase, within_seconds=60, **arguments)
            now = agent.counts(target.pid)
            delta = {call: now[call] - before[call] for call in now if now[call] != before[call]}
            seen = seen_by_cupti(section, f"torch {phase}", target.tell("cupti")["written"], counts_file)
            certain = {call: (delta.get(call, 0), count) for call, count in answer["certain"].items()}
            section.check(
                f"torch {phase}: what it made for certain is counted",
                all(counted == made for counted, made in certain.values()),
                f"(counted, made): {certain}",
            )
            compare(section, f"torch after {phase}", now, None, seen)
            section.table(f"torch_{phase}", delta)
            before = now


def compare(
    section: Section,
    name: str,
    counted: Mapping[str, int],
    made: Mapping[str, int] | None,
    seen: CuptiTally | None,
) -> None:
    """All that is known of one process's calls, side by side."""
    if made is None and seen is None:
        section.not_run(f"{name}: counted is what CUPTI saw", "CUPTI did not count")
        return
    found = rows(counted, made, None if seen is None else by_call(seen.by_name))
    wrong = [row["note"] for row in found if not row["agrees"]]
    against = "made" if made is not None else "what CUPTI saw"
    total = sum(counted.values())
    section.check(
        f"{name}: counted is {against}", not wrong and total > 0, "; ".join(wrong) or f"{total} calls"
    )
    if made is not None and seen is not None:
        missed = [f"{row['call']}: {row['note']}" for row in found if row["note"] and row["agrees"]]
        section.check(f"{name}: CUPTI saw what was made", not missed, "; ".join(missed) or "equal")
    section.figure(f"{name}: calls", total, "calls", "catalogued driver calls counted")
    section.table(f"calls: {name}", found)
    if seen is not None:
        other = {name: count for name, count in seen.by_name.items() if name not in CALL_OF}
        section.table(f"not catalogued, seen by CUPTI: {name}", other)


def nothing_lost(agent: Agent, section: Section) -> None:
    body = agent.coverage()
    lost = {name: count for name, count in body["losses"].items() if count}
    section.check(
        "nothing was lost", not lost and body["calls"]["lost"] == 0, str(lost or "no loss of any kind")
    )
