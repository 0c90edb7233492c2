# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from hotstage.simhost import truth
from hotstage.simhost.faults import Fault, parse_spec

ENTITIES = {"i-0": {"gpu_uuid": "GPU-a", "pci_bus_id": "00000000:65:00.0"}}


def test_calls_are_counted_by_the_library_itself(driver, stubs):
    pid = driver("""
import os
open_context()
for _ in range(23): launch(1)
launch(0)
print(os.getpid())
""")
    made = truth.calls_made(stubs.folder / f"truth-{pid}")
    assert made == {
        "cuInit": 1,
        "cuDevicePrimaryCtxRetain": 1,
        "cuCtxSetCurrent": 1,
        "cuLaunchKernel": 24,
    }


@pytest.mark.parametrize("content", [b"", b"HSTRUTH2", b"x" * 200])
def test_another_file_is_no_truth(tmp_path, content):
    (tmp_path / "truth-1").write_bytes(content)
    with pytest.raises(ValueError, match="truth-1"):
        truth.calls_made(tmp_path / "truth-1")


def record(fault, traffic_end_ns=100_000_000_000):
    return truth.fault_record(fault, start_ns=1_000_000_000, traffic_end_ns=traffic_end_ns, entities=ENTITIES)


def test_each_fault_names_the_window_and_the_entity_to_be_found():
    stall, hang, xid = (record(parse_spec(name)) for name in ("encoder-stall", "hang", "xid"))
    assert (stall["kind"], stall["entity"]) == (
        "stage_latency",
        {"stage": "vision_encode", "modality": "image"},
    )
    assert (hang["kind"], hang["entity"]) == ("alive_but_hung", {"instance": "i-0"})
    assert (xid["kind"], xid["entity"]) == (
        "gpu_xid",
        {"gpu_uuid": "GPU-a", "pci_bus_id": "00000000:65:00.0"},
    )
    assert record(parse_spec("idle"))["kind"] is None
    everywhere = record(Fault("f", "stage_latency", 1.0, 2.0, 3.0, stage="tokenize", instance="i-1"))
    assert everywhere["entity"] == {"stage": "tokenize", "instance": "i-1"}


def test_a_fault_is_cut_at_the_end_of_traffic_and_left_out_beyond_it():
    fault = parse_spec("hang@5-20")
    whole, cut = record(fault), record(fault, traffic_end_ns=10_000_000_000)
    assert (whole["start_ns"], whole["end_ns"]) == (6_000_000_000, 21_000_000_000)
    assert (cut["start_ns"], cut["end_ns"]) == (6_000_000_000, 10_000_000_000)
    assert record(fault, traffic_end_ns=6_000_000_000) is None


def test_the_file_sums_what_processes_and_servers_report(tmp_path):
    requests = {"started": 3, "finished": 2, "open": 1, "refused": 0, "failed": 0}
    server = {
        "requests": requests,
        "stages": [{"stage": "queue"}],
        "dropped": 1,
        "scenes": [{"what": "volley"}],
    }
    truth.write(
        tmp_path / "truth.json",
        seed=7,
        calls_by_pid={10: {"cuInit": 1, "cuLaunchKernel": 5}, 11: {"cuInit": 1}},
        servers=[server, server],
        faults=[],
    )
    document = json.loads((tmp_path / "truth.json").read_text())
    assert document["calls"] == {"cuInit": 2, "cuLaunchKernel": 5}
    assert document["calls_by_pid"]["11"] == {"cuInit": 1}
    assert document["requests"] == {"started": 6, "finished": 4, "open": 2, "refused": 0}
    assert (len(document["stages"]), document["stages_dropped"]) == (2, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["truth.json"]
