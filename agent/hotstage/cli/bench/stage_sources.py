# SPDX-License-Identifier: Apache-2.0
"""The five ways in which a launch gets its stage, each with the server that offers nothing better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hotstage.attribution.worker import Attribution
from hotstage.cli.bench.stage_run import RunPlan, StageRun, run_stages
from hotstage.clock import Clock
from hotstage.config.settings import ProbesConfig
from hotstage.config.stages import StageRule, StagesConfig
from hotstage.probes.engine import ProbeEngine
from hotstage.stages.stage import Stage

MARKS = ("libcuda", "marks")
LIBCUDA = ("libcuda",)
_COMM_BYTES = 15

_RULES = msgspec.convert(
    [
        {"stage": stage.name, "thread": f"{stage.name[:_COMM_BYTES]}*"}
        for stage in Stage
        if Stage.vision_encode <= stage <= Stage.llm_decode
    ],
    list[StageRule],
)
"""What an operator writes who knows how the server's threads are called."""


@dataclass(frozen=True, slots=True)
class Source:
    """The mode of the simulated server, what must be attached in it, and what the agent is told about it."""

    mode: str
    attached: tuple[str, ...]
    config: StagesConfig
    learns: bool = False
    """From a server of the same program that marks, before the one that does not."""
    stages: frozenset[str] | None = None
    """Of which launches the accuracy is; None: of all."""


SOURCES = (
    Source("marks", MARKS, StagesConfig(fingerprints=False)),
    Source("nvtx", MARKS, StagesConfig(fingerprints=False)),
    Source("rules", LIBCUDA, StagesConfig(fingerprints=False, steps=False, rules=_RULES)),
    Source("fingerprints", LIBCUDA, StagesConfig(steps=False), learns=True),
    Source(
        "eager",
        LIBCUDA,
        StagesConfig(fingerprints=False),
        stages=frozenset({Stage.llm_prefill.name, Stage.llm_decode.name}),
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The run of a source, and the rung on which it was probed."""

    run: StageRun
    rung: str


def measure_source(
    source: Source, *, seed: int, seconds: float, clock: Clock, say: Callable[[str], None]
) -> Measured:
    """One source on hosts of its own, judged as the agent judges. Raises HotstageError as `run_stages`.

    What is learned is learned from other requests: of the seed after.
    """
    with (
        TemporaryDirectory(prefix="hotstage-bench-") as folder,
        _probes(source, Path(folder), clock) as engine,
    ):
        if source.learns:
            say(f"{source.mode}: {seconds:.0f} s of a marked server to learn from")
            run_stages(engine, RunPlan("marks", seed + 1, seconds, MARKS), clock)
        say(f"{source.mode}: {seconds:.0f} s of traffic")
        run = run_stages(engine, RunPlan(source.mode, seed, seconds, source.attached), clock)
        return Measured(run, engine.rung)


@contextmanager
def _probes(source: Source, folder: Path, clock: Clock) -> Iterator[ProbeEngine]:
    """Fresh probes, and beside them what judges unmarked work."""
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), clock)
    engine.start()
    try:
        attribution = Attribution(source.config, engine.unmarked, clock, folder)
        attribution.start()
        try:
            yield engine
        finally:
            attribution.close()
    finally:
        engine.close()
