# SPDX-License-Identifier: Apache-2.0
"""A film decoded by the real FFmpeg of PyAV's wheel, under names of its own (`make long`): counts equal
to those of a library in between, the end of a stream is no error, the marked stage, sensible times.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.bpf.conftest import SOURCES
from tests.bpf.real_libraries import assert_untried, fetch, libraries_of
from tests.bpf.targets import covered_kinds, wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.engine import ProbeEngine
from hotstage.stages.stage import Modality, Stage

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

IDS = {call.name: call_id for call_id, call in calls_by_id().items()}
KINDS = {"libavcodec", "libavformat", "libswscale"}


@pytest.fixture
def engine() -> Iterator[ProbeEngine]:
    started = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())
    started.start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("av")
    fetch("av==18.1.0", "libavcodec-*", folder, seconds=120)
    return folder


def test_a_film_is_decoded_as_it_is_counted(packages: Path, engine: ProbeEngine, tmp_path: Path) -> None:
    counter = tmp_path / "decode_truth.so"
    command = ["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-o", counter, SOURCES / "decode_truth.c"]
    subprocess.run(command, check=True)
    with ExitStack() as stack:
        program = subprocess.Popen(
            [sys.executable, SOURCES / "decode.py", packages, tmp_path / "film.mkv"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"LD_PRELOAD": str(counter)},
        )  # fmt: skip
        stack.callback(program.communicate)
        assert program.stdin and program.stdout
        assert program.stdout.readline() == "ready\n"
        wait_until(lambda: covered_kinds(engine, program.pid) >= KINDS, "FFmpeg is attached")
        (codec,) = libraries_of(engine, program.pid, "libavcodec")
        # Its neighbours stand beside it under names of the wheel's own, out of the trial's reach
        assert_untried(codec, "it cannot be loaded here: a library that it needs")
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "50 20\n"
        truth = dict(part.split("=") for part in program.stdout.readline().split())
        _equal_to_truth(engine, program.pid, truth)
        _in_its_stage(engine, program.pid)


def _counted(engine: ProbeEngine, pid: int) -> dict[str, str]:
    """Name → calls/errors."""
    sample = engine.read_slow()
    found = {}
    for name, call_id in IDS.items():
        mine = sample.stats[(sample.keys["tgid"] == pid) & (sample.keys["call"] == call_id)]
        if len(mine) and name.startswith(("av", "sws")):
            found[name] = f"{int(mine['count'].sum())}/{int(mine['errors'].sum())}"
    return found


def _equal_to_truth(engine: ProbeEngine, pid: int, truth: dict[str, str]) -> None:
    """What was made before the attach is in the truth alone: the film's making opened, sent and received."""
    counted = _counted(engine, pid)
    making = {"avcodec_send_frame", "avcodec_receive_packet", "avcodec_open2"}
    for name, told in truth.items():
        if name not in making and told != "0/0":
            assert counted.get(name) == told, (name, counted, truth)
    assert int(counted["avcodec_receive_frame"].split("/")[0]) >= 70
    assert counted["avcodec_receive_frame_flags"] == counted["avcodec_receive_frame"]
    errors = {name for name, told in counted.items() if not told.endswith("/0")}
    assert errors and errors <= {
        "avcodec_send_packet",
        "avcodec_receive_frame",
        "avcodec_receive_frame_flags",
    }


def _in_its_stage(engine: ProbeEngine, pid: int) -> None:
    """Every frame of the film, and none takes longer than all of them."""
    sample = engine.read_slow()
    is_mine = (sample.keys["tgid"] == pid) & (sample.keys["call"] == IDS["avcodec_send_packet"])
    for modality, frames in ((Modality.video, 50), (Modality.audio, 20)):
        marked = (
            is_mine & (sample.keys["stage"] == Stage.media_decode) & (sample.keys["modality"] == modality)
        )
        stats = sample.stats[marked]
        assert frames <= int(stats["count"].sum()) <= frames + 2
        mean_ns = float(np.sum(stats["total_ns"])) / float(np.sum(stats["count"]))
        assert 1_000 < mean_ns < 50_000_000
