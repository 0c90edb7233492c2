# SPDX-License-Identifier: Apache-2.0
"""The stages of a run, in their order: name, question, deadline, function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_checks.report import Section
from gpu_checks.stages.addresses import addresses
from gpu_checks.stages.counts import counts
from gpu_checks.stages.coverage import coverage
from gpu_checks.stages.devices import devices
from gpu_checks.stages.marks import marks
from gpu_checks.stages.overhead import overhead
from gpu_checks.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Stage:
    """`seconds` is the stage's deadline, less when the whole run has less left."""

    name: str
    question: str
    seconds: float
    run: Callable[[Surroundings, Section], None]


STAGES = (
    Stage(
        "coverage",
        "Is every catalogued call of the installed driver attached, and does it fire?",
        80,
        coverage,
    ),
    Stage("counts", "Is what was counted what was made, by the program's tally and by CUPTI's?", 120, counts),
    Stage(
        "addresses", "Do processes obtain any entry point of the driver that is not probed?", 60, addresses
    ),
    Stage("marks", "Do stages, requests and launches of a marked server arrive as it made them?", 80, marks),
    Stage(
        "overhead",
        "What does watching cost: tokens and launches per second, CPU of the agent?",
        130,
        overhead,
    ),
    Stage(
        "devices", "Does the devices process read the GPU, and what does each NVML call cost?", 50, devices
    ),
)
