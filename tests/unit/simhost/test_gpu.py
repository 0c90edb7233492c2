# SPDX-License-Identifier: Apache-2.0
"""The server's GPU code, in a process of its own: it opens a device for the life of that process."""

from __future__ import annotations

import subprocess
import sys

from hotstage.simhost import truth

PROGRAM = """
import os, sys, time
from pathlib import Path
from hotstage.simhost.gpu import Gpu, GpuError
from hotstage.simhost.service import StageWork
from hotstage.stages.stage import Modality, Stage
gpu = Gpu(Path(sys.argv[1]), int(sys.argv[2]))
print(os.getpid())
def work(stage=Stage.vision_encode, modality=Modality.image, device_bytes=4096):
    return StageWork(stage, modality, 0.02, 1, 7, copies=3, input_bytes=3000, device_bytes=device_bytes)
"""


def run(stubs, statements, gpus=1):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + statements, str(stubs.server), str(gpus)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    pid, *printed = done.stdout.split()
    return stubs.folder / f"truth-{pid}", printed


def test_loading_makes_no_call(stubs, page):
    file, _ = run(stubs, "")
    assert truth.calls_made(file) == {}
    assert truth.launches_made(file) == []


def test_a_stage_is_the_calls_an_engine_makes(stubs, page):
    statements = """
gpu.open(weight_bytes=4096, graph_nodes=5)
gpu.open_thread()
began = time.monotonic(); gpu.run(work(), 2.0); print(time.monotonic() - began)
gpu.decode(Modality.mixed, steps=3, step_seconds=0.001, launches=2)
"""
    file, (seconds,) = run(stubs, statements)
    made = truth.calls_made(file)
    assert 0.04 <= float(seconds) < 0.08
    expected = {
        "cuMemAllocAsync": 1,
        "cuMemFreeAsync": 1,
        "cuMemcpyHtoDAsync_v2": 3,
        "cuEventSynchronize": 1,
        "cuGraphLaunch": 3,
        "cuStreamSynchronize": 3,
        "cuLaunchKernel": 5 + 7,
        "cuLaunchCooperativeKernel": 3 * 2,
    }
    assert {name: made[name] for name in expected} == expected
    assert truth.kernels_run(file) == 7 + 3 * (2 + 5)
    assert page.processes[0].used_bytes == 4096


def launches(file):
    return {
        (row.function, row.device, row.stage, row.modality): row.made for row in truth.launches_made(file)
    }


STAGES = """
gpu.open(weight_bytes=4096, graph_nodes=5)
gpu.open_thread()
gpu.run(work(), 0.01)
gpu.run(work(Stage.llm_prefill, Modality.audio), 0.01)
gpu.run(work(Stage.video_encode, Modality.video), 0.01)
gpu.decode(Modality.mixed, steps=3, step_seconds=0.0001, launches=2)
"""


def test_the_library_knows_what_each_launch_was_for(stubs, page):
    file, _ = run(stubs, STAGES)
    assert launches(file) == {
        ("cuLaunchKernel", 0, None, None): 5,
        ("cuLaunchKernel", 0, "vision_encode", "image"): 7,
        ("cuLaunchKernelEx", 0, "llm_prefill", "audio"): 7,
        ("cuLaunchCooperativeKernel", 0, "video_encode", "video"): 7,
        ("cuLaunchCooperativeKernel", 0, "llm_decode", "mixed"): 6,
        ("cuGraphLaunch", 0, "llm_decode", "mixed"): 3,
    }


def test_of_two_gpus_the_encoders_have_the_first(stubs, page):
    file, _ = run(stubs, STAGES, gpus=2)
    assert {stage: device for _, device, stage, _ in launches(file)} == {
        None: 1,
        "vision_encode": 0,
        "video_encode": 0,
        "llm_prefill": 1,
        "llm_decode": 1,
    }


def test_a_failed_allocation_is_an_error_with_its_code(stubs, page):
    statements = """
gpu.open(weight_bytes=4096, graph_nodes=1)
gpu.open_thread()
try: gpu.run(work(device_bytes=1 << 30), 1.0)
except GpuError as error: print(error.code)
gpu.run(work(), 1.0)
"""
    _, printed = run(stubs, statements)
    assert printed == ["2"]
    assert page.processes[0].failed_allocations == 1
