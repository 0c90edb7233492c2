# SPDX-License-Identifier: Apache-2.0
"""`[probes] nvtx_torch` on the real libtorch_python.so: stages of torch.cuda.nvtx, and what a range costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.bpf.targets import build_library, wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.maps.layout import Source
from hotstage.stages.stage import NO_STAGE, Modality, Stage

LAUNCH = CUDA_DRIVER.by_symbol()["cuLaunchKernel"].call_id
SLICES = 60


@pytest.fixture
def watch() -> Iterator[Callable[..., ProbeEngine]]:
    engines: list[ProbeEngine] = []

    def begin(**settings: bool) -> ProbeEngine:
        engine = ProbeEngine(ProbesConfig(xid=False, nvtx_torch=True, **settings), SystemClock())
        engines.append(engine)
        engine.start()
        return engine

    yield begin
    for engine in engines:
        engine.close()


def wait_for(engine: ProbeEngine, pid: int) -> None:
    wanted = {"libcuda", "torch_nvtx"}
    wait_until(lambda: attached(engine, pid) >= wanted, f"{wanted} are attached", 20)


def attached(engine: ProbeEngine, pid: int) -> set[str]:
    processes = [process for process in engine.coverage().processes if process.pid == pid]
    return {lib.kind for process in processes for lib in process.libraries if lib.since_ns is not None}


def launches_by_stage(engine: ProbeEngine, pid: int) -> dict[int, int]:
    sample = engine.read_slow()
    chosen = (sample.keys["tgid"] == pid) & (sample.keys["call"] == LAUNCH)
    found: dict[int, int] = {}
    for key, stat in zip(sample.keys[chosen], sample.stats[chosen], strict=True):
        found[int(key["stage"])] = found.get(int(key["stage"]), 0) + int(stat["count"])
    return found


def test_ranges_of_a_running_program_are_stages(watch, start_program, tmp_path: Path) -> None:
    program = start_program("ranges.py", build_library(tmp_path))
    engine = watch()  # it runs already: nothing could be injected any more
    wait_for(engine, program.pid)
    program.do("serve", 1)  # the names are new: their ranges are nothing yet
    before = launches_by_stage(engine, program.pid)
    assert before == {NO_STAGE: 3 + 11 + 2 + 29 + 5}
    program.do("serve", 7)
    after = launches_by_stage(engine, program.pid)
    assert {stage: count - before.get(stage, 0) for stage, count in after.items()} == {
        NO_STAGE: (3 + 5) * 7,
        Stage.vision_encode: (11 + 2) * 7,
        Stage.llm_prefill: 29 * 7,
    }
    program.do("hold")
    threads = engine.read_fast().threads
    (thread,) = threads[(threads["tgid"] == program.pid) & (threads["stage"] == Stage.vision_encode)]
    assert (thread["source"], thread["modality"]) == (Source.NVTX, Modality.image)


def test_both_functions_are_probed_on_an_emulated_instruction(watch, start_program, tmp_path: Path) -> None:
    program = start_program("ranges.py", build_library(tmp_path))
    engine = watch()
    wait_for(engine, program.pid)
    (process,) = (process for process in engine.coverage().processes if process.pid == program.pid)
    (library,) = (library for library in process.libraries if library.kind == "torch_nvtx")
    assert (library.attached, library.emulated) == (2, 2)


def test_a_range_costs_a_tenth_of_what_it_costs_at_its_symbol(watch, start_program, tmp_path: Path) -> None:
    program = start_program("ranges.py", build_library(tmp_path))
    bare = program.do("time", SLICES)
    cost: dict[bool, float] = {}
    for is_fast in (False, True):
        engine = watch(fast_placement=is_fast)
        wait_for(engine, program.pid)
        program.do("serve", 1)
        engine.read_slow()
        cost[is_fast] = program.do("time", SLICES) - bare
        engine.close()
    print(f"push and pop: {bare:.0f} ns, at the symbol {cost[False]:+.0f}, placed {cost[True]:+.0f}")
    assert cost[True] < cost[False] / 3
