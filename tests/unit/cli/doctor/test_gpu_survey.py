# SPDX-License-Identifier: Apache-2.0
"""The process that asks NVML: its lines are read, a hang is named and nothing of it is left."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from hotstage.cli.doctor.gpu_survey import survey_gpus

TALK = r"""
import json, os, sys, time
def tell(**line): os.write(1, json.dumps(line).encode() + b"\n")
print(os.getpid(), file=open(sys.argv[1], "w"), flush=True)
tell(event="calling", call="init", gpu=None)
tell(event="library", path="/x/libnvidia-ml.so.1", version="570.1", driver="570.1", gpus=1,
     refused=["GPU 1: GPU is lost"], seconds=0.01)
tell(event="gpu", index=0, uuid="GPU-a", name="H100", bus="0000:01:00.0")
tell(event="calling", call="memory", gpu=0)
tell(event="value", gpu=0, name="memory", supported=True, lacking=[], seconds=0.002)
tell(event="calling", call="power", gpu=0)
"""


def script(tmp_path: Path, rest: str) -> tuple[tuple[str, ...], Path]:
    file, pid = tmp_path / "survey.py", tmp_path / "pid"
    file.write_text(TALK + rest)
    return (sys.executable, "-S", str(file), str(pid)), pid


def is_gone(pid: Path) -> bool:
    return not Path("/proc", pid.read_text().strip()).exists()


def test_a_survey_that_ends_is_whole(host, tmp_path):
    command, pid = script(tmp_path, "tell(event='modes', gpu=0, mig=None, persistence=True, lost=False)\n"
                          "tell(event='end', reason=None)\n")  # fmt: skip
    survey = survey_gpus(host, command, 10.0)
    assert (survey.driver, survey.hangs_in, survey.reason, survey.has_library) == ("570.1", None, None, True)
    assert survey.gpus[0].readings["memory"]["seconds"] == 0.002
    assert survey.gpus[0].persistence is True
    assert survey.refused == ["GPU 1: GPU is lost"]
    assert is_gone(pid)


def test_a_call_that_hangs_is_named_and_the_process_ended(host, tmp_path):
    command, pid = script(
        tmp_path, "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)\n"
    )
    began = time.monotonic()
    survey = survey_gpus(host, command, 0.5)
    assert time.monotonic() - began < 2.0
    assert survey.hangs_in == "power of GPU 0"
    assert list(survey.gpus[0].readings) == ["memory"]
    assert is_gone(pid)


def test_a_process_that_dies_in_a_call_is_told_like_one_that_hangs(host, tmp_path):
    command, _ = script(tmp_path, "os.abort()\n")
    assert survey_gpus(host, command, 10.0).hangs_in == "power of GPU 0"


def test_no_library_is_told_by_the_exit_status(host, tmp_path):
    command, _ = script(tmp_path, "tell(event='end', reason='not found')\nsys.exit(3)\n")
    survey = survey_gpus(host, command, 10.0)
    assert (survey.has_library, survey.reason) == (False, "not found")


def test_a_command_that_cannot_be_started_is_not_known(host, tmp_path):
    survey = survey_gpus(host, (str(tmp_path / "nowhere"),), 1.0)
    assert survey.not_started is not None
    assert "No such file" in survey.not_started


def test_a_flood_of_output_is_not_read_for_ever(host, tmp_path):
    command, pid = script(tmp_path, "while True: tell(event='calling', call='x' * 1000, gpu=0)\n")
    began = time.monotonic()
    assert survey_gpus(host, command, 10.0).hangs_in is not None
    assert time.monotonic() - began < 5.0
    assert is_gone(pid)
