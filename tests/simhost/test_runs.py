# SPDX-License-Identifier: Apache-2.0
"""Whole runs: each fault leaves its labelled truth and its traces, and nothing is left behind.

Runs mostly wait for their requests to come: several take their seconds together.
"""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from tests.simhost.conftest import Run, Starter

from hotstage.simhost.gpus import GPUS

SLOW_FETCH = """
[[fault]]
name = "slow-fetch"
stage = "media_fetch"
modality = "audio"
instance = "i-1"
factor = 12
start = 0
end = 4
"""
SIDE_BY_SIDE = {
    "hung": "--seconds 5 --fault hang@0.5-3.5",
    "hung at its end": "--seconds 2 --fault hang@0.5-60",
    "one": "--seconds 2 --seed 5",
    "the same": "--seconds 2 --seed 5",
    "plain": "--seconds 3 --seed 2",
    "stalled": "--seconds 5 --fault encoder-stall@2.5-5",
    "slowed by a file": "--seconds 4 --faults {faults}",
}
"""Name → options."""

WITHOUT_FAULT = {
    **{mode: f"--seconds 2 --gpus 2 --mode {mode}" for mode in ("nvtx", "rules", "fingerprints")},
    "busy": "--seconds 4 --fault load-ramp@0-4",
    "idle": "--fault idle@0-60",
    "brief": "--seconds 1",
}
"""The same: fewer at a time, so that no request waits for anything but its like."""


def begun(place: Path, named: dict[str, str]) -> Iterator[dict[str, Run]]:
    """Runs that need nothing from outside, with traffic since a moment ago; to be finished by their tests."""
    faults = place / "faults.toml"
    faults.write_text(SLOW_FETCH)
    starter = Starter(place)
    runs = {name: starter.begin(*given.format(faults=faults).split()) for name, given in named.items()}
    for run in runs.values():
        run.until("waiting")
    for run in runs.values():
        run.say("go")
    yield runs
    starter.close()


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    yield from begun(tmp_path_factory.mktemp("side-by-side"), SIDE_BY_SIDE)


@pytest.fixture(scope="module")
def without_fault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    yield from begun(tmp_path_factory.mktemp("without-fault"), WITHOUT_FAULT)


def seconds_of(truth, stage, modality, instance=None, after_ns=0):
    return [
        (span["ended_ns"] - span["began_ns"]) / 1e9
        for span in truth["stages"]
        if (span["stage"], span["modality"]) == (stage, modality)
        and instance in (None, span["instance"])
        and span["began_ns"] >= after_ns
    ]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids):
    deadline = time.monotonic() + 5
    while alive := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"waited 5 s for the end of {alive}"
        time.sleep(0.02)


def test_a_hang_is_healthy_from_outside_and_ends(side_by_side):
    run = side_by_side["hung"]
    run.until("fault", state="began")
    time.sleep(0.8)
    port = next(event["health_port"] for event in run.events if event.get("instance") == "i-0")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
        assert answer.status == 200
    asked_ns = time.monotonic_ns()
    truth = run.finish()
    (fault,) = truth["faults"]
    assert (fault["kind"], fault["entity"]) == ("alive_but_hung", {"instance": "i-0"})
    assert asked_ns < fault["end_ns"], "asked too late: the test shows nothing"
    quiet = (fault["start_ns"] + 100_000_000, fault["end_ns"])
    ended = [
        span["instance"]
        for span in truth["stages"]
        if span["stage"] in ("llm_prefill", "llm_decode") and quiet[0] < span["ended_ns"] < quiet[1]
    ]
    assert set(ended) == {"i-1"}
    assert truth["requests"]["open"] == 0


def test_a_hang_at_the_end_leaves_its_requests_open_and_makes_no_more_calls(side_by_side):
    run = side_by_side["hung at its end"]
    truth = run.until_truth()
    assert truth["requests"]["open"] > 0
    assert truth["faults"][0]["end_ns"] < truth["faults"][0]["start_ns"] + 10e9
    time.sleep(0.3)
    assert run.calls() == truth["calls"]


def test_no_cuda_call_is_made_before_go_and_the_libraries_are_mapped(start):
    run = start()
    for pid in run.pids:
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert str(run.folder / "lib" / "libcuda.so.550.00") in maps
        assert "hotstage_marks/_native" in maps
    assert run.finish()["calls"] == {}


def test_the_same_seed_is_the_same_run(side_by_side):
    first, second = (side_by_side[name].finish() for name in ("one", "the same"))
    assert first["requests"] == second["requests"]
    work = [
        sorted((span["request"].rsplit("-", 1)[0], span["stage"], span["tokens"]) for span in truth["stages"])
        for truth in (first, second)
    ]
    assert work[0] == work[1]
    assert len(work[0]) > 60
    assert not {span["request"] for span in first["stages"]} & {span["request"] for span in second["stages"]}


def test_a_run_tells_everything_that_happened(side_by_side):
    run = side_by_side["plain"]
    started_ns = run.until("traffic")["start_ns"]
    truth = run.finish()
    assert truth["seed"] == 2
    assert truth["requests"]["started"] == truth["requests"]["finished"] > 10
    assert truth["requests"]["open"] == truth["requests"]["refused"] == 0
    assert truth["calls"]["cuGraphLaunch"] == truth["calls"]["cuStreamSynchronize"] > 0
    assert {int(pid) for pid in truth["calls_by_pid"]} == set(run.pids)
    for name, made in truth["calls"].items():
        assert made == sum(calls.get(name, 0) for calls in truth["calls_by_pid"].values())
    assert all(started_ns <= span["began_ns"] <= span["ended_ns"] for span in truth["stages"])
    assert {span["modality"] for span in truth["stages"]} == {"text", "image", "audio", "video"}
    launches = [row for row in truth["launches"] if row["stage"] is not None]
    assert {row["stage"] for row in launches} == {
        "vision_encode", "audio_encode", "video_encode", "cross_modal_align", "llm_prefill", "llm_decode",
    }  # fmt: skip
    for name in ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch"):
        assert truth["calls"][name] == sum(
            row["made"] for row in truth["launches"] if row["function"] == name
        )


def threads_of(pid):
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


def wait_for_thread(pid, name):
    deadline = time.monotonic() + 5
    while name not in threads_of(pid):
        assert time.monotonic() < deadline, f"waited 5 s for a thread {name} in {threads_of(pid)}"
        time.sleep(0.02)


def libraries_of(pid):
    return Path(f"/proc/{pid}/maps").read_text()


def test_a_server_gives_no_other_sign_of_its_stages_than_its_mode_says(without_fault):
    runs = {mode: without_fault[mode] for mode in ("nvtx", "rules", "fingerprints")}
    for run in runs.values():
        run.until("traffic")
    pids = {mode: run.pids[0] for mode, run in runs.items()}
    assert "libhotstage_nvtx" in libraries_of(pids["nvtx"])
    assert not any("hotstage_marks" in libraries_of(pids[mode]) for mode in ("rules", "fingerprints"))
    wait_for_thread(pids["rules"], "vision_encode-0")
    wait_for_thread(pids["fingerprints"], "worker")
    assert not any("encode" in name for name in threads_of(pids["fingerprints"]))
    truths = {mode: run.finish() for mode, run in runs.items()}
    work = [
        sorted((span["request"].rsplit("-", 1)[0], span["stage"]) for span in truth["stages"])
        for truth in truths.values()
    ]
    assert work[0] == work[1] == work[2] and len(work[0]) > 60
    encoders = [
        row["device"]
        for truth in truths.values()
        for row in truth["launches"]
        if "encode" in (row["stage"] or "")
    ]
    assert set(encoders) == {0}


def test_a_stalled_encoder_is_slow_in_truth_and_the_rest_is_not(side_by_side):
    run = side_by_side["stalled"]
    began = run.until("fault", state="began")
    truth = run.finish()
    (fault,) = truth["faults"]
    assert fault["kind"] == "stage_latency"
    assert fault["entity"] == {"stage": "vision_encode", "modality": "image"}
    assert abs(fault["start_ns"] - began["at_ns"]) < 5e8
    slow = seconds_of(truth, "vision_encode", "image", after_ns=fault["start_ns"])
    calm = [value for value in seconds_of(truth, "vision_encode", "image") if value not in slow]
    assert median(slow) > 4 * median(calm)
    assert median(seconds_of(truth, "video_encode", "video", after_ns=fault["start_ns"])) < 1.0


def test_any_stage_can_be_slowed_by_a_file(side_by_side):
    truth = side_by_side["slowed by a file"].finish()
    assert truth["faults"][0]["entity"] == {
        "stage": "media_fetch",
        "modality": "audio",
        "instance": "i-1",
    }
    slowed = seconds_of(truth, "media_fetch", "audio", "i-1")
    assert median(slowed) > 0.2
    assert max(seconds_of(truth, "media_fetch", "audio", "i-0") or [0]) < 0.2


def test_an_xid_names_its_gpu_in_the_kernel_log(start):
    run = start("--fault", "xid@0.2:48")
    run.say("go")
    run.until("fault", state="began")
    warnings = [event for event in run.events if event["event"] == "warning"]
    (fault,) = run.finish()["faults"]
    assert (fault["kind"], fault["severity"]) == ("gpu_xid", 48)
    assert fault["entity"] == {"gpu_uuid": GPUS[0].uuid, "pci_bus_id": "0000:65:00"}
    if os.geteuid() == 0:
        assert not warnings
        assert f"NVRM: Xid (PCI:0000:65:00): 48, pid={run.pids[0]}," in kernel_log()
    else:
        assert warnings and "/dev/kmsg" in warnings[0]["message"]


def kernel_log():
    lines = []
    descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            lines.append(os.read(descriptor, 8192))
    except BlockingIOError:
        return b"".join(lines).decode(errors="replace")
    finally:
        os.close(descriptor)


def test_hard_negatives_expect_nothing_and_stay_served(without_fault):
    busy = without_fault["busy"].finish()
    assert busy["faults"][0]["kind"] is None
    assert busy["requests"]["started"] > 45
    assert busy["requests"]["open"] == busy["requests"]["refused"] == 0
    assert max(seconds_of(busy, "queue", "image")) < 0.2
    assert without_fault["idle"].finish()["requests"]["started"] == 0


def test_nothing_is_left_but_the_truth(without_fault):
    run = without_fault["brief"]
    run.finish()
    assert [path.name for path in run.folder.iterdir()] == ["truth.json"]
    wait_gone(run.pids)


def test_a_killed_host_takes_its_servers_along(start):
    run = start()
    run.say("go")
    run.until("traffic")
    run.process.kill()
    wait_gone(run.pids)


def test_the_end_of_its_input_ends_the_host_and_its_servers(start):
    run = start("--fault", "hang@0.1-60")
    run.say("go")
    run.until("fault", state="began")
    time.sleep(0.5)
    run.process.stdin.close()
    assert run.process.wait(10) == 0
    wait_gone(run.pids)
    assert list(run.folder.iterdir()) == []


def test_a_terminated_host_cleans_up(start):
    run = start()
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(10) == 130
    wait_gone(run.pids)
    assert list(run.folder.iterdir()) == []


def test_a_dead_server_is_said_and_the_rest_goes_on(start):
    run = start("--seconds", "1.5")
    run.say("go")
    run.until("traffic")
    os.kill(run.pids[1], signal.SIGKILL)
    assert run.until("died")["instance"] == "i-1"
    truth = run.finish()
    assert truth["requests"]["started"] > 0
    assert {span["instance"] for span in truth["stages"]} == {"i-0"}
