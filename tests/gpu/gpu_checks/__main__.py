# SPDX-License-Identifier: Apache-2.0
"""`python -m gpu_checks`: run the stages in turn, write the report after each. `tests/gpu/run.sh` calls it.

Exit status: 0 all passed, 1 something failed, 3 parts could not run here; the report names them.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_checks.report import Report, Section
from gpu_checks.simulated import simulated_libraries
from gpu_checks.stages import STAGES, Stage
from gpu_checks.surroundings import Surroundings, find_cupti, find_torch_python, host_facts
from gpu_checks.target import Target, TargetError
from hotstage.errors import HotstageError

TOTAL_SECONDS = 450.0
LEAST_SECONDS = 5.0
"""A stage is not begun with less than this left."""


class DeadlineError(Exception):
    """A stage took longer than it may."""


def main() -> int:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    sections = tuple(Section(stage.name, stage.question) for stage in STAGES)
    ends = time.monotonic() + options.seconds
    signal.signal(signal.SIGALRM, _past_deadline)
    signal.signal(signal.SIGTERM, _told_to_end)
    with ExitStack() as stack:
        at = surroundings(options, stack)
        report = Report(host_facts(at.torch_python, gpu_facts(at)), options.dry_run, sections)
        for stage, section in zip(STAGES, sections, strict=True):
            if options.only and stage.name not in options.only:
                section.not_run("the stage", "left out by --only")
                continue
            say(f"{stage.name}: {stage.question}")
            run(stage, section, at, ends - time.monotonic())
            report.write(options.out)
            say(f"{stage.name}: {section.outcome.value} in {section.seconds or 0:.1f} s")
    report.write(options.out)
    print(report.summary())
    return report.exit_code()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description="The checks that need a real GPU.")
    parser.add_argument("--out", type=Path, default=Path("gpu-report"), help="folder for the report")
    parser.add_argument(
        "--seconds", type=float, default=TOTAL_SECONDS, help="length of the whole run at most"
    )
    parser.add_argument("--dry-run", action="store_true", help="on simulated libraries, without a GPU")
    parser.add_argument("--torch-python", help="interpreter that has PyTorch; default: one that is found")
    parser.add_argument(
        "--only",
        action="append",
        choices=[stage.name for stage in STAGES],
        help="run this stage (repeatable)",
    )
    parser.add_argument("--libraries", help="folder with libbpf.so.1, for the agent alone")
    return parser.parse_args()


def surroundings(options: argparse.Namespace, stack: ExitStack) -> Surroundings:
    """Everything the stages share; gone when `stack` closes."""
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hotstage-gpu-")))
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_INJECTION64_PATH"}
    programs, agent = dict(environment), dict(environment)
    if options.dry_run:
        stubs = stack.enter_context(simulated_libraries(scratch / "stubs"))
        programs = _with_libraries(programs, str(stubs))
        agent = {**agent, "HOTSTAGE_DEVICES_LIBRARY_DIRECTORY": str(stubs)}
    if options.libraries:
        agent = _with_libraries(agent, options.libraries)
    torch_python = None if options.dry_run else find_torch_python(options.torch_python)
    return Surroundings(
        out=options.out,
        scratch=scratch,
        is_dry_run=options.dry_run,
        torch_python=torch_python,
        agent_environment=agent,
        program_environment=programs,
        cupti=None if options.dry_run else find_cupti(torch_python),
        programs_log=stack.enter_context((options.out / "programs.log").open("wb")),
        agent_log=stack.enter_context((options.out / "agent.log").open("wb")),
    )


def _with_libraries(environment: dict[str, str], folder: str) -> dict[str, str]:
    before = environment.get("LD_LIBRARY_PATH")
    return {**environment, "LD_LIBRARY_PATH": f"{folder}:{before}" if before else folder}


def gpu_facts(at: Surroundings) -> dict[str, Any]:
    """What NVML says of GPU 0; `gpu` None where it does not answer."""
    try:
        with Target(
            at.driver_python, "nvml_calls", environment=at.program_environment, log=at.programs_log
        ) as nvml:
            found = nvml.tell("identity")
    except TargetError as error:
        found = {"failure": str(error)}
    return {"gpu": None, "driver": None, "nvml_failure": found["failure"]} if "failure" in found else found


def run(stage: Stage, section: Section, at: Surroundings, left_seconds: float) -> None:
    """One stage within its deadline; whatever ends it is a finding, and the next stage goes on."""
    if left_seconds < LEAST_SECONDS:
        section.not_run("the stage", "the run's time was used up before it")
        return
    began = time.monotonic()
    try:
        with deadline(min(stage.seconds, left_seconds)):
            stage.run(at, section)
    except (DeadlineError, TargetError, HotstageError, OSError) as error:
        section.check("the stage came to its end", False, f"{type(error).__name__}: {error}")
    except Exception as error:  # a bug in a stage must not cost the others their turn
        section.check("the stage came to its end", False, f"{type(error).__name__}: {error}")
        traceback.print_exc()
    section.seconds = time.monotonic() - began


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """DeadlineError in this thread when the block takes longer."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _past_deadline(number: int, frame: FrameType | None) -> None:
    raise DeadlineError("the stage's time is up")


def _told_to_end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(1)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
