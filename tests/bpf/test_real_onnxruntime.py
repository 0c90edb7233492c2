# SPDX-License-Identifier: Apache-2.0
"""The real ONNX Runtime, from its wheel (`make long`: thirty megabytes, no GPU): its table is found in the
file, and a real model's calls are counted to the last one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import SOURCES, Workload
from tests.bpf.real_libraries import assert_tried, fetch
from tests.bpf.targets import covered_kinds, wait_until
from tests.bpf.test_onnxruntime import libraries_of
from tests.bpf.tiny_model import tiny_model

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue.onnxruntime import ONNX_RUNTIME
from hotstage.probes.engine import ProbeEngine

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

REQUIREMENT = "onnxruntime==1.32.0"
PYTHON_PROGRAM = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
print("ok", flush=True)
for line in sys.stdin:
    for _ in range(int(line.rstrip(" -\\n"))):
        assert session.run(None, {"x": numpy.ones(4, "f4")})[0].tolist() == [2, 2, 2, 2]
    print("ok", flush=True)
"""


class Program(Workload):
    def __init__(self, *command: object, path: Path | None = None) -> None:
        environment = {"PYTHONPATH": str(path)} if path else None
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        self.pid = self.process.pid
        self.wait("its start")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel's package."""
    folder = tmp_path_factory.mktemp("onnxruntime")
    fetch(REQUIREMENT, "libonnxruntime.so.1.*", folder, seconds=200)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_model())
    return path


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    with ExitStack() as stack:

        def run(*command: object, path: Path | None = None) -> Program:
            program = Program(*command, path=path)
            stack.callback(program.close)
            return program

        yield run


@pytest.fixture
def engine() -> Iterator[ProbeEngine]:
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())  # type: ignore[arg-type]
    yield engine
    engine.close()


def failed(engine: ProbeEngine, name: str) -> int:
    (call_id,) = [call.call_id for call in ONNX_RUNTIME.calls if call.name == name]
    sample = engine.read_slow()
    return int(sample.stats["errors"][sample.keys["call"] == call_id].sum())


def counted(engine: ProbeEngine) -> dict[str, int]:
    return {name: count.counted for name, count in engine.totals().other_layers["library"].items()}


def test_a_real_model_by_the_real_library_is_counted_to_the_last_call(
    wheel: Path, model: Path, engine: ProbeEngine, start: Callable[..., Program], tmp_path: Path
) -> None:
    (library,) = wheel.rglob("libonnxruntime.so.1.*")
    copy = tmp_path / library.name
    shutil.copyfile(library, copy)
    there = start("-S", SOURCES / "onnxruntime_program.py", library, model)
    for line in ("r = Runtime(path)", "s = r.session(model)", "[r.run(s) for _ in range(7)]"):
        there.do(line)
    engine.start()
    (found,) = libraries_of(engine, there.pid)
    table = found.api_table
    assert (found.state, found.attached, found.from_start) == ("attached", len(ONNX_RUNTIME.calls), False)
    assert table is not None and (table.version, table.refusal) == ("1.32.0", None)
    assert_tried(found, "OrtGetApiBase")
    there.do("assert not any([r.run(s) for _ in range(1009)])")
    there.do("assert all([r.run(s, b'nothing') for _ in range(11)])")
    comes = start("-S", SOURCES / "onnxruntime_program.py", copy, model)
    comes.do("r = Runtime(path)")
    wait_until(lambda: "libonnxruntime" in covered_kinds(engine, comes.pid), "it is attached")
    for line in (
        "s = r.session(model)",
        "t = r.new(FROM_FILE, r.environment, path_of_model, r.options)",
        "b = r.binding(s)",
        "assert not any([r.call(WITH_BINDING, s, None, b) for _ in range(503)])",
        "[r.run_async(s) for _ in range(13)]",
        "[r.call(RELEASE_SESSION, session) for session in (s, t)]",
    ):
        comes.do(line)
    assert failed(engine, "OrtRun") == 11
    assert counted(engine) == {
        "OrtRun": 1009 + 11,
        "OrtCreateSessionFromArray": 1,
        "OrtCreateSession": 1,
        "OrtRunWithBinding": 503,
        "OrtRunAsync": 13,
        "OrtReleaseSession": 2,
    }


def test_the_python_binding_calls_past_the_table_and_coverage_says_so(
    wheel: Path, model: Path, engine: ProbeEngine, start: Callable[..., Program]
) -> None:
    python = start("-c", PYTHON_PROGRAM, model, path=wheel)
    engine.start()
    python.do("101")
    (found,) = libraries_of(engine, python.pid)
    assert (found.kind, found.state, found.attached) == ("onnxruntime_python", "ignored", 0)
    assert found.reason is not None and "past its table of functions" in found.reason
    assert counted(engine) == {}
