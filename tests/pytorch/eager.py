# SPDX-License-Identifier: Apache-2.0
"""How well prefill and decode of programs without CUDA graphs are told: `make bench-eager` prints the table.

Real PyTorch, real probes, the agent's own judge. Which phase a launch truly is of, the program says by the
entry of libcuda that it takes, so the kernel's counts by call and stage are the confusion.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bpf.targets import wait_until
from tests.pytorch.conftest import PROGRAMS, Program
from tests.pytorch.simulated import simulated_cuda

from hotstage.attribution.worker import Attribution
from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.config.stages import StagesConfig
from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.engine import ProbeEngine
from hotstage.stages.stage import Stage

OTHER = 0
"""Launches that are of neither phase, or of both."""
TRUTH = {
    CUDA_DRIVER.by_symbol()[symbol].call_id: truth
    for symbol, truth in (
        ("cuLaunchKernel", OTHER),
        ("cuLaunchKernelEx", Stage.llm_prefill),
        ("cuLaunchCooperativeKernel", Stage.llm_decode),
    )
}
TOLD = (Stage.llm_prefill, Stage.llm_decode)

STEPS = 100
"""Between two looks of the judge."""
UNTOLD_STEPS, TOLD_STEPS = 1200, 600
"""A program of which nothing is told ends after so many; after the first verdict so many are counted."""

LANGUAGE = (
    "loop, one sequence",
    "loop, batch of 8",
    "engine, 8 sequences",
    "engine, 32 sequences",
    "engine, 8, long prompts in chunks",
    "engine, 16, short prompts",
    "engine, one sequence",
    "engine, 8, chunks beside decode",
    "engine, 32, chunks beside decode",
    "encoder before each prompt",
)
OTHERS = (
    "image encoder",
    "embeddings",
    "embeddings, padded",
    "classifier, padded",
    "recommender",
    "denoising",
    "training",
)

Counts = Counter[tuple[int, int]]
"""Launches by what they truly are of and what they were told to be: a stage's id, or OTHER."""


@dataclass(frozen=True)
class Outcome:
    """One run of a program. Of one of which nothing was told, `counts` are all its launches."""

    counts: Counts
    told_after: int | None
    """Steps until a stage was told; None: never."""

    def told_share(self, stage: Stage) -> float | None:
        """Of the launches that truly are the stage's, how many were told so; None where there are none."""
        of_stage = sum(count for (truth, _), count in self.counts.items() if truth == stage)
        return self.counts[stage, stage] / of_stage if of_stage else None

    @property
    def told(self) -> int:
        return sum(count for (_, told), count in self.counts.items() if told != OTHER)

    @property
    def told_wrong(self) -> int:
        return sum(count for (truth, told), count in self.counts.items() if told not in (OTHER, truth))


class Watch:
    """Probes and judge, as the agent runs them."""

    def __init__(self, directory: Path) -> None:
        clock = SystemClock()
        self._engine = ProbeEngine(ProbesConfig(xid=False), clock)
        self._engine.start()
        self._attribution = Attribution(StagesConfig(), self._engine.unmarked, clock, directory)
        self._attribution.start()

    def close(self) -> None:
        self._attribution.close()
        self._engine.close()

    def wait_attached(self, pid: int) -> None:
        def is_attached() -> bool:
            found = [process for process in self._engine.coverage().processes if process.pid == pid]
            libraries = (library for each in found for library in each.libraries)
            return any(each.kind == "libcuda" and each.since_ns is not None for each in libraries)

        wait_until(is_attached, "libcuda is attached", 30)

    def wait_judged(self, pid: int) -> None:
        """What the process has done so far was looked at."""
        now_ns = time.time_ns()

        def is_judged() -> bool:
            found = self._attribution.explain(pid)
            return found is not None and found["judged_at_ns"] > now_ns

        wait_until(is_judged, "the judge has looked at the program", 20)

    def why(self, pid: int) -> str:
        found = self._attribution.explain(pid)
        return found["threads"][0]["why"] if found and found["threads"] else "never followed"

    def counts(self, pid: int) -> Counts:
        sample = self._engine.read_slow()
        found: Counts = Counter()
        for key, stat in zip(sample.keys, sample.stats, strict=True):
            call, stage = int(key["call"]), int(key["stage"])
            if key["tgid"] == pid and call in TRUTH:
                found[TRUTH[call], stage if stage in TOLD else OTHER] += int(stat["count"])
        return found


def run(watch: Watch, program: Program) -> Outcome:
    """Until something is told, then so many steps more."""
    watch.wait_attached(program.pid)
    for steps in range(STEPS, UNTOLD_STEPS + 1, STEPS):
        program.do("steps", STEPS)
        counts = watch.counts(program.pid)
        if Outcome(counts, None).told:
            return Outcome(_after_verdict(watch, program, counts), steps)
        watch.wait_judged(program.pid)
    return Outcome(counts, None)


def _after_verdict(watch: Watch, program: Program, before: Counts) -> Counts:
    for _ in range(0, TOLD_STEPS, STEPS):
        program.do("steps", STEPS)
    return watch.counts(program.pid) - before


@contextmanager
def laboratory(torch_python: Path) -> Iterator[Callable[[str, int], tuple[Outcome, str]]]:
    """Runs programs by name and seed, one after another; with what the judge says of each."""
    with TemporaryDirectory(prefix="hotstage-eager-") as folder:
        libraries = simulated_cuda(Path(folder) / "libraries", torch_python, with_products=True, factor=0.0)
        with libraries as environment:
            watch = Watch(Path(folder))

            def measure(name: str, seed: int) -> tuple[Outcome, str]:
                program = Program(torch_python, PROGRAMS / "eager.py", name, seed, **environment)
                try:
                    return run(watch, program), watch.why(program.pid)
                finally:
                    program.close()

            try:
                yield measure
            finally:
                watch.close()


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    """A line of the table in Markdown."""
    wrong, told = sum(each.told_wrong for each in outcomes), sum(each.told for each in outcomes)
    launches = sum(sum(each.counts.values()) for each in outcomes)
    after = _span([each.told_after for each in outcomes], "{:d}")
    shares = (_span([each.told_share(stage) for each in outcomes], "{:.0%}") for stage in reversed(TOLD))
    return " | ".join((f"| {name}", after, *shares, f"{wrong:,} of {told:,} told, {launches:,} made |"))


def _span(values: Sequence[float | None], form: str) -> str:
    """The least and the most; a dash where there is nothing to tell of."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    least, most = form.format(min(known)), form.format(max(known))
    return (least if least == most else f"{least} to {most}") + (", or –" if None in values else "")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, prog="python -m tests.pytorch.eager")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    arguments.add_argument("--programs", nargs="+", default=[*LANGUAGE, *OTHERS], metavar="NAME")
    chosen = arguments.parse_args()
    print("| program | told after steps | decode told | prefill told | told wrong |\n|---|---|---|---|---|")
    with laboratory(Path(os.environ["HOTSTAGE_TORCH_PYTHON"]).absolute()) as measure:
        for name in chosen.programs:
            outcomes = []
            for seed in chosen.seeds:
                outcome, why = measure(name, seed)
                outcomes.append(outcome)
                print(f"{name}, seed {seed}: {why}", file=sys.stderr)
            print(row(name, outcomes), flush=True)


if __name__ == "__main__":
    main()
