# SPDX-License-Identifier: Apache-2.0
"""An untouched program that emits NVTX, with PyPI's `nvtx`, under the engine: its calls count for its stages.

Prime counts, so that a call counted for another stage cannot look right by accident.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.maps.layout import Source
from hotstage.stages.stage import NO_STAGE, Stage

sys.path.insert(0, str(Path(__file__).parent))
from targets import build_library, wait_until

pytestmark = pytest.mark.kernel
pytest.importorskip("nvtx", reason="the real package is what this is about: pip install nvtx")

PROGRAM = """
import ctypes, os, sys
import nvtx
cuda = ctypes.CDLL(sys.argv[1])

def launch(times):
    for _ in range(times):
        cuda.cuLaunchKernel(None)

@nvtx.annotate("vision_encode")
def encode():
    launch(11)

def serve():
    launch(3)
    encode()
    with nvtx.annotate("gpu_model_runner: forward"):
        launch(17)
        with nvtx.annotate("layer 3", domain="model"):
            launch(2)
        with nvtx.annotate("ncclAllReduce", domain="NCCL"):
            launch(5)
        with nvtx.annotate("sample"):
            launch(7)
        launch(4)
    nvtx.push_range("Prefill chunk 4")
    launch(29)
    nvtx.pop_range()

nvtx.push_range("warm up")      # NVTX loads the injection library here
nvtx.pop_range()
request = queue = None
for line in sys.stdin:
    if line == "serve\\n":
        for _ in range(5):
            serve()
    elif line == "begin\\n":
        request = nvtx.start_range("request r-1", domain="hotstage")
        queue = nvtx.start_range("queue r-1", domain="hotstage")
    elif line == "end\\n":
        nvtx.end_range(queue)
        nvtx.end_range(request)
    elif line == "hold\\n":
        nvtx.push_range("vision_encode")
    elif line == "fork\\n":
        child = os.fork()
        if not child:
            serve()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "the child has lived"
    print("done", flush=True)
"""
LAUNCH = CUDA_DRIVER.by_symbol()["cuLaunchKernel"].call_id
TRUTH = {
    NO_STAGE: 3 * 5,
    Stage.vision_encode: 11 * 5,
    Stage.llm_decode: (17 + 2 + 5 + 4) * 5,
    Stage.sample: 7 * 5,
    Stage.llm_prefill: 29 * 5,
}


class Untouched:
    """The program, started by the launcher as a user would."""

    def __init__(self, library: Path) -> None:
        command = [sys.executable, "-m", "hotstage_marks.nvtx", sys.executable, "-c", PROGRAM, str(library)]
        environment = {name: value for name, value in os.environ.items() if name != "NVTX_INJECTION64_PATH"}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.pid = self.process.pid

    def do(self, what: str) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(what.encode() + b"\n")
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        assert ready, f"the program did {what} within 20 s"
        assert self.process.stdout.readline() == b"done\n"

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@pytest.fixture
def engine() -> Iterator[ProbeEngine]:
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())
    engine.start()
    yield engine
    engine.close()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Untouched]:
    program = Untouched(build_library(tmp_path))
    program.do("nothing")
    yield program
    program.close()


def is_attached(engine: ProbeEngine, pid: int) -> bool:
    libraries = [
        lib for process in engine.coverage().processes if process.pid == pid for lib in process.libraries
    ]
    return {"libcuda", "marks"} <= {library.kind for library in libraries if library.since_ns is not None}


def launches_by_stage(engine: ProbeEngine, pid: int) -> dict[int, int]:
    sample = engine.read_slow()
    chosen = (sample.keys["tgid"] == pid) & (sample.keys["call"] == LAUNCH)
    found: dict[int, int] = {}
    for key, stat in zip(sample.keys[chosen], sample.stats[chosen], strict=True):
        found[int(key["stage"])] = found.get(int(key["stage"]), 0) + int(stat["count"])
    return found


def test_the_launches_of_an_untouched_program_count_for_its_stages(engine: ProbeEngine, program: Untouched):
    wait_until(lambda: is_attached(engine, program.pid), "driver and marks are attached")
    program.do("serve")
    assert launches_by_stage(engine, program.pid) == TRUTH
    sources = engine.unmarked.launches_by_source()[program.pid]
    outside = TRUTH.get(NO_STAGE, 0)
    assert (sources.mark, sources.nvtx, sources.none) == (0, sum(TRUTH.values()) - outside, outside)


def test_a_request_that_its_program_names_is_in_the_stage_it_says(engine: ProbeEngine, program: Untouched):
    wait_until(lambda: is_attached(engine, program.pid), "driver and marks are attached")
    program.do("begin")
    requests = engine.read_fast().requests
    (live,) = requests[requests["tgid"] == program.pid]
    assert (live["id"], live["open_mask"]) == (b"r-1", 1 << Stage.queue)
    program.do("end")
    finished = engine.read_fast().finished
    (done,) = finished[finished["tgid"] == program.pid]
    assert (done["id"], done["stage_mask"], done["outcome"]) == (b"r-1", 1 << Stage.queue, 0)


def test_a_stage_says_that_nvtx_has_told_of_it(engine: ProbeEngine, program: Untouched):
    wait_until(lambda: is_attached(engine, program.pid), "driver and marks are attached")
    program.do("hold")
    threads = engine.read_fast().threads
    (thread,) = threads[(threads["tgid"] == program.pid) & (threads["stage"] == Stage.vision_encode)]
    assert thread["source"] == Source.NVTX


def test_a_child_that_a_watched_program_forks_goes_on_marking(engine: ProbeEngine, program: Untouched):
    wait_until(lambda: is_attached(engine, program.pid), "driver and marks are attached")
    program.do(
        "serve"
    )  # Linux 6.18 makes a call of a probed five-byte nop at its first hit; the child has no target
    program.do("fork")
    assert launches_by_stage(engine, program.pid) == TRUTH
