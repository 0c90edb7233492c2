# SPDX-License-Identifier: Apache-2.0
"""The examples of the marks, run as they are: what they say is what a watching agent gets."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hotstage_marks
from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.engine import ProbeEngine
from hotstage.stages.slots import FIRST_OWN
from hotstage.stages.stage import Stage

sys.path.insert(0, str(Path(__file__).parent))
from targets import build_library, wait_until

PACKAGE = Path(hotstage_marks.__file__).parent
EXAMPLES = PACKAGE / "examples"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def engine() -> Iterator[ProbeEngine]:
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())
    engine.start()
    yield engine
    engine.close()


@pytest.fixture
def start(engine: ProbeEngine) -> Iterator[Start]:
    """Starts an example and returns when it is attached."""
    started: list[subprocess.Popen[str]] = []

    def run(*command: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        wait_until(lambda: process.pid in engine.pids(), "the example is attached")
        return process

    yield run
    for process in started:
        process.kill()
        process.wait(20)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 20)
    assert ready, "the example said nothing for 20 s"
    return process.stdout.readline().strip()


class Told:
    """What the agent has of one process so far: its finished requests and the parts of its batches."""

    def __init__(self, engine: ProbeEngine, pid: int) -> None:
        self.engine, self.pid = engine, pid
        self._finished: list[NDArray[np.void]] = []
        self._batches: list[NDArray[np.void]] = []

    def finished(self, count: int) -> NDArray[np.void]:
        def all_told() -> bool:
            sample = self.engine.read_fast()
            self._finished.append(sample.finished[sample.finished["tgid"] == self.pid])
            self._batches.append(sample.batches[sample.batches["tgid"] == self.pid])
            return sum(map(len, self._finished)) >= count

        wait_until(all_told, f"{count} finished requests")
        return np.concatenate(self._finished)

    @property
    def batches(self) -> NDArray[np.void]:
        return np.concatenate(self._batches)

    def own_stage(self, name: str) -> int:
        names = self.engine.told.stage_names()
        return next(stage for (pid, stage), known in names.items() if (pid, known) == (self.pid, name))


def slot_of(row: np.void, stage: int) -> np.void:
    """The request's slot of a stage that its server made up."""
    held = int(row["own_stages"]).to_bytes(8, "little")
    return row["stages"][FIRST_OWN + held.index(stage)]


def test_two_hundred_requests_on_one_thread_are_kept_apart(engine: ProbeEngine, start: Start) -> None:
    server = start(sys.executable, EXAMPLES / "asyncio_server.py")
    port = int(line_of(server))
    images = {f"req-{number}": b"x" * (number + 1) for number in range(200)}

    def ask(rid: str) -> int:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(rid.encode() + b" " + images[rid])
            connection.shutdown(socket.SHUT_WR)
            return int(connection.makefile().readline())

    with ThreadPoolExecutor(50) as clients:
        answers = dict(zip(images, clients.map(ask, images), strict=True))
    told = Told(engine, server.pid)
    rows = told.finished(200)
    own = told.own_stage("safety_check")
    assert {row["id"].decode() for row in rows} == set(images)
    for row in rows:
        rid = row["id"].decode()
        stages = row["stages"]
        assert row["output_tokens"] == answers[rid]
        assert f"{row['input_digest']:016x}" == hotstage_marks.digest(images[rid])
        assert stages["tokens"][Stage.vision_encode] == len(images[rid])
        assert stages["count"][[Stage.queue, Stage.vision_encode, Stage.llm_decode]].tolist() == [1, 1, 1]
        assert row["stage_mask"] >> np.uint64(own) & np.uint64(1)
        assert slot_of(row, own)["count"] == 1
        assert (row["embedding_dims"], row["embedding_dtype"]) == (256, 0)
        assert row["embedding_stage"] == Stage.vision_encode
        assert row["embedding_address"]
        assert row["open_mask"] == 0


def test_a_batch_gives_each_member_its_own_tokens(engine: ProbeEngine, start: Start) -> None:
    loop = start(sys.executable, EXAMPLES / "batch_loop.py")
    assert line_of(loop) == "ready"
    wanted = {f"b-{number}": (100 + number, 1 + number % 4) for number in range(40)}
    assert loop.stdin is not None
    loop.stdin.write("".join(f"{rid} {prompt} {count}\n" for rid, (prompt, count) in wanted.items()))
    loop.stdin.close()
    assert line_of(loop) == "done"
    told = Told(engine, loop.pid)
    rows = told.finished(40)
    shares = shares_by_request(told.batches)
    hashes = {rid: hotstage_marks.request_hash(rid) for rid in wanted}
    assert {rid: shares[hashes[rid]] for rid in wanted} == {
        rid: {Stage.llm_prefill: prompt, **({Stage.llm_decode: count - 1} if count > 1 else {})}
        for rid, (prompt, count) in wanted.items()
    }
    assert "draft_tokens" in engine.told.stage_names().values()
    for row in rows:
        prompt, count = wanted.pop(row["id"].decode())
        assert row["stages"]["tokens"][Stage.llm_prefill] == prompt
        assert row["stages"]["count"][[Stage.llm_prefill, Stage.llm_decode]].tolist() == [1, count - 1]
        assert row["output_tokens"] == count
        assert (row["lora_rank"], row["lora_module"]) == (16, 1)
    assert not wanted


def shares_by_request(batches: NDArray[np.void]) -> dict[int, dict[int, int]]:
    """request hash → stage → tokens, of all parts; every batch's parts add up to what it says of itself."""
    found: dict[int, dict[int, int]] = {}
    totals: dict[int, int] = {}
    for part in batches["batch"]:
        for member in part["member"][: part["members"]]:
            of_request = found.setdefault(int(member["request_hash"]), {})
            stage, tokens = int(member["stage"]), int(member["tokens"])
            of_request[stage] = of_request.get(stage, 0) + tokens
            totals[int(part["batch_id"])] = totals.get(int(part["batch_id"]), 0) + tokens
    assert totals == {int(part["batch_id"]): int(part["tokens_total"]) for part in batches["batch"]}
    return found


def test_a_server_in_cpp_says_the_same(engine: ProbeEngine, start: Start, tmp_path: Path) -> None:
    program = tmp_path / "server"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{PACKAGE / 'include'}"]
    link = [f"-L{PACKAGE}", "-lhotstage_marks", f"-Wl,-rpath,{PACKAGE}"]
    command = ["g++", *flags, EXAMPLES / "server.cpp", *link, "-o", program]
    subprocess.run(command, check=True, timeout=60)
    server = start(program)
    assert line_of(server) == "ready"
    assert server.stdin is not None
    server.stdin.write("".join(f"c-{number} {number + 1}\n" for number in range(20)))
    server.stdin.close()
    assert line_of(server) == "watched"
    told = Told(engine, server.pid)
    rows = told.finished(20)
    own = told.own_stage("rerank")
    (batch,) = told.batches
    assert batch["batch"]["word"] & np.uint64(0xFF) == own
    shares = shares_by_request(told.batches)
    assert {row["id"].decode(): int(row["output_tokens"]) for row in rows} == {
        f"c-{number}": number + 1 for number in range(20)
    }
    for row in rows:
        count = int(row["output_tokens"])
        assert f"{row['input_digest']:016x}" == hotstage_marks.digest(bytes([count]) * 64 * count)
        assert row["stages"]["tokens"][Stage.vision_encode] == 64 * count
        assert row["stages"]["count"][[Stage.vision_encode, Stage.llm_decode]].tolist() == [1, 1]
        assert slot_of(row, own)["tokens"] == count
        assert shares[int(row["request_hash"])] == {own: count}
        assert (row["embedding_dims"], row["embedding_stage"]) == (64 * count, Stage.vision_encode)


def test_a_process_sees_whether_it_is_watched(engine: ProbeEngine, start: Start) -> None:
    program = "import sys, hotstage_marks as m\nfor _ in sys.stdin: print(m.is_watched(), flush=True)"
    process = start(sys.executable, "-c", program)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert line_of(process) == "True"


BATCHES = """
import ctypes, sys
import hotstage_marks as marks
cuda = ctypes.CDLL(sys.argv[1])

def launch(times):
    for _ in range(times):
        cuda.cuLaunchKernel(None)

def serve(number):
    members = [(f"r-{index}", "llm_decode", 1 + index) for index in range(number)]
    launch(2)
    with marks.batch(members, modality="text"):
        launch(5)
        with marks.stage("vision_encode", request="r-0"):
            launch(3)
        with marks.stage("my_reranker", request=""):
            launch(7)
        launch(11)
    launch(13)

for line in sys.stdin:
    for index in range(100):
        marks.request_begin(f"r-{index}")
    for number in map(int, line.split()):
        serve(number)
    for index in range(100):
        marks.request_end(f"r-{index}")
    print("done", flush=True)
"""


def test_a_batch_has_what_its_thread_did_and_a_request_what_was_done_for_it_alone(
    engine: ProbeEngine, start: Start, tmp_path: Path
) -> None:
    process = start(sys.executable, "-c", BATCHES, build_library(tmp_path))
    wait_until(lambda: kinds_of(engine, process.pid) >= {"libcuda", "marks"}, "both libraries are attached")
    assert process.stdin is not None
    process.stdin.write("3 100 1\n")
    process.stdin.flush()
    assert line_of(process) == "done"
    told = Told(engine, process.pid)
    rows = told.finished(100)
    batches = told.batches
    assert batches["batch"]["members"].tolist() == [3, 64, 36, 1]
    assert batches["batch"]["members_total"].tolist() == [3, 100, 100, 1]
    assert batches["work"]["launches"].tolist() == [5 + 7 + 11] * 4
    assert {row["id"]: int(row["launches"]) for row in rows if row["launches"]} == {b"r-0": 3 * 3}
    assert engine.told.stage_names()[(process.pid, told.own_stage("my_reranker"))] == "my_reranker"


def kinds_of(engine: ProbeEngine, pid: int) -> set[str]:
    processes = [process for process in engine.coverage().processes if process.pid == pid]
    return {lib.kind for process in processes for lib in process.libraries if lib.since_ns is not None}


LATER = """
import sys
import time
import hotstage_marks as marks
with marks.stage("before anybody came", request=""):
    pass
for line in sys.stdin:
    with marks.stage(line.strip(), request=""):
        pass
    print(marks.statistics()["stages_refused"], flush=True)
"""


def test_an_agent_that_comes_later_learns_the_names_of_stages(engine: ProbeEngine, start: Start) -> None:
    process = start(sys.executable, "-c", LATER)
    assert process.stdin is not None
    for name in ("before anybody came", "größer\x1b[0m" + "x" * 40, *(f"stage {n}" for n in range(40))):
        process.stdin.write(name + "\n")
        process.stdin.flush()
        refused = line_of(process)
    names = {name for (pid, _), name in engine.told.stage_names().items() if pid == process.pid}
    assert {"before anybody came", "gr____er_[0m" + "x" * 19} <= names
    assert (len(names), refused) == (32, "10")


def test_names_outlive_their_process_for_its_finished_requests(start: Start) -> None:
    hasty = ProbeEngine(ProbesConfig(xid=False, driver=False, process_linger_seconds=0.1), SystemClock())
    try:
        hasty.start()
        process = start(sys.executable, "-c", LATER)
        wait_until(lambda: process.pid in hasty.pids(), "the marks are attached")
        assert process.stdin is not None
        process.stdin.write("reranked\n")
        process.stdin.flush()
        line_of(process)
        mine = {key: name for key, name in hasty.told.stage_names().items() if key[0] == process.pid}
        assert "reranked" in mine.values()
        process.stdin.close()
        process.wait(20)
        wait_until(lambda: process.pid not in hasty.pids(), "the exit is noticed")
        time.sleep(0.15)
        hasty.read_slow()
        assert mine.items() <= hasty.told.stage_names().items()
    finally:
        hasty.close()
