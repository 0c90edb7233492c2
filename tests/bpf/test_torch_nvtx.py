# SPDX-License-Identifier: Apache-2.0
"""NVTX ranges of a library that keeps NVTX's functions to itself, as PyTorch does: no injection is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.maps.layout import Source
from hotstage.stages.stage import NO_STAGE, Modality, Stage

sys.path.insert(0, str(Path(__file__).parent))
from targets import build_library, wait_until

pytestmark = pytest.mark.kernel

SOURCE = Path(__file__).parent / "target/torch_python.c"
LAUNCH = CUDA_DRIVER.by_symbol()["cuLaunchKernel"].call_id
PROGRAM = """
import ctypes, sys
import hotstage_marks as marks
cuda, torch = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])

def launch(times):
    for _ in range(times):
        cuda.cuLaunchKernel(None)

def serve(step):
    launch(3)
    torch.range_push(b"vision_encode")
    launch(11)
    torch.range_push(b"no rule knows this %d" % step)
    launch(2)
    torch.range_pop()
    with marks.stage("sample"):
        torch.range_push(b"llm_decode")
        launch(7)
        torch.range_pop()
    torch.range_pop()
    launch(5)
    torch.range_push(b"Prefill chunk %d" % step)
    launch(29)
    torch.range_pop()

def hostile():
    torch.range_pop()
    names = [bytes(97 + number // 26**place % 26 for place in range(3)) * 40 for number in range(3000)]
    for name in names[:30]:
        torch.range_push(name)
    for _ in range(40):
        torch.range_pop()
    for name in names:
        torch.range_push(name)
        torch.range_pop()
    torch.range_push(None)
    torch.range_pop()

for line in sys.stdin:
    word, _, times = line.strip().partition(" ")
    if word == "hold":
        torch.range_push(b"vision_encode")
    for step in range(int(times or 0)):
        hostile() if word == "hostile" else serve(step)
    print("done", flush=True)
"""


class Program:
    """A program with the library and a driver, told what to do line by line."""

    def __init__(self, folder: Path, name: str) -> None:
        torch = folder / name
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", torch, SOURCE], check=True)
        command = [sys.executable, "-c", PROGRAM, str(build_library(folder)), str(torch)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.do("nothing")

    def do(self, what: str) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[ProbeEngine, Program]]]:
    """An agent and a program that it has attached to."""
    opened: list[ProbeEngine | Program] = []

    def begin(*, is_on: bool) -> tuple[ProbeEngine, Program]:
        engine = ProbeEngine(ProbesConfig(xid=False, driver=False, nvtx_torch=is_on), SystemClock())
        opened.append(engine)
        engine.start()
        program = Program(tmp_path, "libtorch_python.so")
        opened.append(program)
        wanted = {"libcuda", "marks"} | ({"torch_nvtx"} if is_on else set())
        wait_until(lambda: kinds(engine, program.pid) >= wanted, f"{wanted} are attached")
        return engine, program

    yield begin
    for each in reversed(opened):
        each.close()


def kinds(engine: ProbeEngine, pid: int) -> set[str]:
    processes = [process for process in engine.coverage().processes if process.pid == pid]
    return {lib.kind for process in processes for lib in process.libraries if lib.since_ns is not None}


def launches_by_stage(engine: ProbeEngine, pid: int) -> dict[int, int]:
    sample = engine.read_slow()
    chosen = (sample.keys["tgid"] == pid) & (sample.keys["call"] == LAUNCH)
    found: dict[int, int] = {}
    for key, stat in zip(sample.keys[chosen], sample.stats[chosen], strict=True):
        found[int(key["stage"])] = found.get(int(key["stage"]), 0) + int(stat["count"])
    return found


def test_local_ranges_are_stages_from_the_moment_their_names_are_known(start) -> None:
    engine, program = start(is_on=True)
    program.do("serve 1")  # the names are new: their ranges are nothing yet
    before = launches_by_stage(engine, program.pid)
    assert before == {NO_STAGE: 3 + 11 + 2 + 5 + 29, Stage.sample: 7}
    program.do("serve 5")
    after = launches_by_stage(engine, program.pid)
    assert {stage: count - before.get(stage, 0) for stage, count in after.items()} == {
        NO_STAGE: (3 + 5) * 5,
        Stage.vision_encode: (11 + 2) * 5,
        Stage.sample: 7 * 5,  # a mark is left alone
        Stage.llm_prefill: 29 * 5,  # whatever its number
    }


def test_the_thread_says_that_nvtx_has_told_of_it(start) -> None:
    engine, program = start(is_on=True)
    program.do("serve 1")
    engine.read_slow()
    program.do("hold")
    threads = engine.read_fast().threads
    (thread,) = threads[(threads["tgid"] == program.pid) & (threads["stage"] == Stage.vision_encode)]
    assert (thread["source"], thread["modality"]) == (Source.NVTX, Modality.image)


def test_what_is_hostile_is_bounded_and_counted(start) -> None:
    engine, program = start(is_on=True)
    engine.read_slow()  # the range that its price was measured with makes room
    program.do("hostile 1")
    assert engine.coverage().losses["lost_nvtx_ranges"] == 3000 - 1024
    engine.read_slow()
    program.do("serve 1")
    engine.read_slow()
    program.do("serve 1")
    assert launches_by_stage(engine, program.pid)[Stage.vision_encode] == 13


def test_switched_off_the_library_is_not_even_opened(start) -> None:
    engine, program = start(is_on=False)
    program.do("serve 2")
    assert launches_by_stage(engine, program.pid) == {NO_STAGE: (3 + 11 + 2 + 5 + 29) * 2, Stage.sample: 14}
    assert "torch_nvtx" not in kinds(engine, program.pid)
