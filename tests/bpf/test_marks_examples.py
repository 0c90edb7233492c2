# SPDX-License-Identifier: Apache-2.0
"""The examples of the marks, run as they are: what they say is what a watching agent gets."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
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
from hotstage.stages.stage import Stage

sys.path.insert(0, str(Path(__file__).parent))
from targets import wait_until

PACKAGE = Path(hotstage_marks.__file__).parent
EXAMPLES = PACKAGE / "examples"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def engine() -> Iterator[ProbeEngine]:
    engine = ProbeEngine(ProbesConfig(xid=False), SystemClock())
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


def finished_of(engine: ProbeEngine, pid: int, count: int) -> NDArray[np.void]:
    found: list[NDArray[np.void]] = []

    def all_told() -> bool:
        rows = engine.read_fast().finished
        found.append(rows[rows["tgid"] == pid])
        return sum(map(len, found)) >= count

    wait_until(all_told, f"{count} finished requests")
    return np.concatenate(found)


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
    rows = finished_of(engine, server.pid, 200)
    assert {row["id"].decode() for row in rows} == set(images)
    for row in rows:
        rid = row["id"].decode()
        stages = row["stages"]
        assert row["output_tokens"] == answers[rid]
        assert f"{row['input_digest']:016x}" == hotstage_marks.digest(images[rid])
        assert stages["tokens"][Stage.vision_encode] == len(images[rid])
        assert stages["count"][[Stage.queue, Stage.vision_encode, Stage.llm_decode]].tolist() == [1, 1, 1]
        assert row["open_mask"] == 0


def test_a_batch_gives_each_member_its_own_tokens(engine: ProbeEngine, start: Start) -> None:
    loop = start(sys.executable, EXAMPLES / "batch_loop.py")
    assert line_of(loop) == "ready"
    wanted = {f"b-{number}": (100 + number, 1 + number % 4) for number in range(40)}
    assert loop.stdin is not None
    loop.stdin.write("".join(f"{rid} {prompt} {count}\n" for rid, (prompt, count) in wanted.items()))
    loop.stdin.close()
    assert line_of(loop) == "done"
    rows = finished_of(engine, loop.pid, 40)
    for row in rows:
        prompt, count = wanted.pop(row["id"].decode())
        assert row["stages"]["tokens"][Stage.llm_prefill] == prompt
        assert row["stages"]["count"][[Stage.llm_prefill, Stage.llm_decode]].tolist() == [1, count - 1]
        assert row["output_tokens"] == count
    assert not wanted


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
    rows = finished_of(engine, server.pid, 20)
    assert {row["id"].decode(): int(row["output_tokens"]) for row in rows} == {
        f"c-{number}": number + 1 for number in range(20)
    }
    for row in rows:
        count = int(row["output_tokens"])
        assert f"{row['input_digest']:016x}" == hotstage_marks.digest(bytes([count]) * 64 * count)
        assert row["stages"]["tokens"][Stage.vision_encode] == 64 * count
        assert row["stages"]["count"][[Stage.vision_encode, Stage.llm_decode]].tolist() == [1, 1]


def test_a_process_sees_whether_it_is_watched(engine: ProbeEngine, start: Start) -> None:
    program = "import sys, hotstage_marks as m\nfor _ in sys.stdin: print(m.is_watched(), flush=True)"
    process = start(sys.executable, "-c", program)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert line_of(process) == "True"
