# SPDX-License-Identifier: Apache-2.0
"""Stage `overhead`: the same work with and without an agent, in turn. It measures and sets no limit."""

from __future__ import annotations

import select
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from gpu_checks.agent import Agent, running_agent
from gpu_checks.programs.driver import ptx
from gpu_checks.report import Section
from gpu_checks.surroundings import Surroundings, compile_helper
from gpu_checks.target import Target, TargetError, end_with_us

BASIS = (
    "windows with and without an agent in turn (ABBA), in one run, on the same processes; medians of the "
    "windows, spread = least and largest ratio of two neighbours"
)
PAIRS, WINDOW_SECONDS, SLICES, SLICE_LAUNCHES = 5, 1.5, 12, 10_000
PAIRS_DRY, WINDOW_DRY, SLICES_DRY, LAUNCHES_DRY = 2, 0.1, 3, 500
LOOP_SECONDS = 30.0


class LaunchLoop:
    """`native/launch_loop.c` as a process: empty kernels as fast as C can launch them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.made = 0
        self._line()

    def slice(self, launches: int) -> float:
        """Nanoseconds per launch of one slice."""
        assert self.process.stdin
        self.process.stdin.write(f"slice {launches}\n")
        self.process.stdin.flush()
        count, taken_ns = self._line().split()
        self.made += int(count)
        return int(taken_ns) / int(count)

    def _line(self) -> str:
        assert self.process.stdout
        readable, _, _ = select.select([self.process.stdout], [], [], LOOP_SECONDS)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            raise TargetError("launch_loop did not answer: see programs.log")
        return line


@dataclass
class Window:
    """What one window gave: rates, and the agent's share where there was one."""

    is_traced: bool
    rates: dict[str, float] = field(default_factory=dict)
    agent_cpu_ratio: float | None = None
    wrong: list[str] = field(default_factory=list)


def overhead(at: Surroundings, section: Section) -> None:
    with ExitStack() as stack:
        decoder = None
        if at.torch_python is None:
            section.not_run("tokens per second", "no interpreter here has PyTorch")
        else:
            decoder = stack.enter_context(
                Target(at.torch_python, "decode", environment=at.program_environment, log=at.programs_log)
            )
            decoder.tell("start", within_seconds=90)
        loop = stack.enter_context(launch_loop(at, section))
        if decoder is None and loop is None:
            return
        windows: list[Window] = []
        for pair in range(PAIRS_DRY if at.is_dry_run else PAIRS):
            for is_traced in (False, True) if pair % 2 == 0 else (True, False):
                windows.append(window(at, decoder, loop, is_traced=is_traced))
        judge(windows, section)
        if loop is not None:
            at_the_symbol(at, loop, section)


@contextmanager
def launch_loop(at: Surroundings, section: Section) -> Iterator[LaunchLoop | None]:
    """The loop, running; None where it cannot be compiled."""
    program = at.scratch / "launch_loop"
    reason = compile_helper("launch_loop.c", program)
    if reason is not None:
        section.not_run("launches per second", reason)
        yield None
        return
    with Target(
        at.driver_python, "driver_calls", environment=at.program_environment, log=at.programs_log
    ) as once:
        capability = once.tell("open", within_seconds=60)["capability"]
    process = subprocess.Popen(
        [str(program), ptx(capability)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=at.programs_log,
        env=dict(at.program_environment),
        text=True,
        preexec_fn=end_with_us(),  # noqa: PLW1509  # system calls only, no lock
    )
    try:
        yield LaunchLoop(process)
    finally:
        assert process.stdin and process.stdout
        process.kill()
        process.wait(10)
        process.stdin.close()
        process.stdout.close()


def window(at: Surroundings, decoder: Target | None, loop: LaunchLoop | None, *, is_traced: bool) -> Window:
    """One window of everything; with an agent, what it counted is compared with what was made."""
    result = Window(is_traced)
    if not is_traced:
        measure(at, decoder, loop, result)
        return result
    with running_agent(at.agent_environment, at.agent_log) as agent:
        pids = [each.pid for each in (decoder, loop.process if loop else None) if each is not None]
        for pid in pids:
            agent.wait_attached(pid)
        made_before = loop.made if loop else 0
        cpu, began = agent.cpu_seconds(), time.monotonic()
        replays = measure(at, decoder, loop, result)
        result.agent_cpu_ratio = (agent.cpu_seconds() - cpu) / (time.monotonic() - began)
        if loop is not None:
            expect(agent, loop.process.pid, "cuLaunchKernel", loop.made - made_before, result)
        if decoder is not None:
            expect(agent, decoder.pid, "cuGraphLaunch", replays, result)
    return result


def measure(at: Surroundings, decoder: Target | None, loop: LaunchLoop | None, result: Window) -> int:
    """Rates of one window into `result`; graph replays made."""
    seconds = WINDOW_DRY if at.is_dry_run else WINDOW_SECONDS
    replays = 0
    if decoder is not None:
        eager = decoder.tell("window", seconds=seconds, graph=False)
        graph = decoder.tell("window", seconds=seconds, graph=True)
        replays = graph["steps"]
        result.rates["tokens_per_second"] = eager["tokens"] / eager["seconds"]
        result.rates["tokens_per_second_by_graph"] = graph["tokens"] / graph["seconds"]
    if loop is not None:
        launches, slices = (LAUNCHES_DRY, SLICES_DRY) if at.is_dry_run else (SLICE_LAUNCHES, SLICES)
        taken_ns = [loop.slice(launches) for _ in range(slices)]
        result.rates["launches_per_second"] = 1e9 / statistics.median(taken_ns)
        result.rates["launches_per_second_at_best"] = 1e9 / min(taken_ns)
    return replays


def expect(agent: Agent, pid: int, call: str, made: int, result: Window) -> None:
    counted = agent.counts(pid)[call]
    if counted != made:
        result.wrong.append(f"{call}: made {made}, counted {counted}")


def judge(windows: list[Window], section: Section) -> None:
    """Medians, ratios, spread; a traced window counts only if its counts are right."""
    traced = [each for each in windows if each.is_traced]
    wrong = [problem for each in traced for problem in each.wrong]
    section.check(
        "in every traced window counted is made", not wrong and bool(traced), "; ".join(wrong) or "equal"
    )
    rates: dict[str, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for each in windows:
        for name, rate in each.rates.items():
            rates[name][each.is_traced].append(rate)
    for name, sides in rates.items():
        with_agent, without = statistics.median(sides[True]), statistics.median(sides[False])
        ratios = sorted(a / b for a, b in zip(sides[True], sides[False], strict=True))
        section.figure(f"{name}: without", without, "1/s", BASIS)
        section.figure(f"{name}: with agent", with_agent, "1/s", BASIS)
        section.figure(
            f"{name}: ratio",
            with_agent / without,
            "",
            f"with / without; spread {ratios[0]:.3f} to {ratios[-1]:.3f}",
        )
        section.table(name, {"with_agent": sides[True], "without": sides[False], "ratios": ratios})
        section.check(f"{name} was measured", with_agent > 0 and without > 0, f"{len(ratios)} pairs")
    if "launches_per_second_at_best" in rates:
        best = rates["launches_per_second_at_best"]
        added = 1e9 / max(best[True]) - 1e9 / max(best[False])
        section.figure(
            "added_to_a_launch", added, "ns", "least slice with an agent minus least slice without"
        )
    cpu = [each.agent_cpu_ratio for each in traced if each.agent_cpu_ratio is not None]
    section.figure(
        "agent_cpu_ratio", statistics.median(cpu), "of one core", "the agent's own CPU time, traced windows"
    )
    section.table("agent_cpu_ratios", cpu)


def at_the_symbol(at: Surroundings, loop: LaunchLoop, section: Section) -> None:
    """What the placement rule saves on this driver: the loop once more with every probe at its symbol."""
    launches, slices = (LAUNCHES_DRY, SLICES_DRY) if at.is_dry_run else (SLICE_LAUNCHES, SLICES)
    settings = {"HOTSTAGE_PROBES_FAST_PLACEMENT": "false"}
    with running_agent(at.agent_environment, at.agent_log, settings) as agent:
        attached = agent.wait_attached(loop.process.pid)
        taken_ns = [loop.slice(launches) for _ in range(slices)]
    section.figure(
        "launches_per_second_at_the_symbol", 1e9 / min(taken_ns), "1/s", "best slice, placement rule off"
    )
    section.figure(
        "emulated_at_the_symbol", attached["emulated"], "", f"of {attached['attached']} symbols, rule off"
    )
