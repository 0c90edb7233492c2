# SPDX-License-Identifier: Apache-2.0
"""What unmarked launches count as: by rules, by the functions that were learned, by the shape of steps."""

from __future__ import annotations

import pytest
from tests.bpf.conftest import Probes, Workload

from hotstage.probes.maps.inference import FunctionDecision, RuleEntry
from hotstage.probes.maps.layout import GRAPH_HANDLE, NO_STAGE, PHASE_LAUNCHES, FunctionKind, RuleFlag, Source

LAUNCH, LAUNCH_EX, GRAPH, COPY, WAIT = 1, 2, 4, 40, 64
VISION, PREFILL, DECODE, SAMPLE = 8, 12, 13, 15
IMAGE, TEXT = 1, 0
NVTX = 2 << 40


def thread_of(probes: Probes, workload: Workload) -> dict[str, int]:
    (row,) = probes.threads(workload.pid)
    names = ("launch_total", "unattributed_total", "rule_total", "fingerprint_total", "nvtx_total", "source")
    return {name: int(row[name]) for name in (*names, "steps", "graph_steps", "burst_steps")}


def handles_of(probes: Probes, workload: Workload) -> dict[str, int]:
    return {each.name: each.handle for each in probes.maps.inference.functions() if each.pid == workload.pid}


def anchor(stage: int, modality: int = TEXT) -> FunctionDecision:
    return FunctionDecision(FunctionKind.ANCHOR, stage, modality)


def shared(*stages: int) -> FunctionDecision:
    return FunctionDecision(FunctionKind.SHARED, stage_mask=sum(1 << stage for stage in stages))


def test_a_process_rule_is_for_work_without_a_mark_only(probes: Probes, workload: Workload) -> None:
    workload.launch(11)
    assert not probes.maps.inference.set_rules(workload.pid, [RuleEntry(0, 0, DECODE, TEXT)])
    workload.launch(101)
    workload.call("copy", 5, 4096)
    workload.do("stage_begin", "-", VISION | IMAGE << 8, 0, 0)
    workload.launch(37)
    workload.do("stage_end", "-", VISION | IMAGE << 8, 0, 0)
    workload.launch(3)
    assert probes.count(workload.pid, LAUNCH, stage=NO_STAGE) == 11
    assert probes.count(workload.pid, LAUNCH, stage=DECODE, modality=TEXT) == 104
    assert probes.count(workload.pid, LAUNCH, stage=VISION, modality=IMAGE) == 37
    assert probes.count(workload.pid, COPY, stage=DECODE) == 5
    seen = thread_of(probes, workload)
    assert (seen["launch_total"], seen["unattributed_total"], seen["rule_total"]) == (152, 11, 104)
    assert seen["source"] == Source.RULE
    probes.maps.inference.set_rules(workload.pid, [])
    workload.launch(7)
    assert probes.count(workload.pid, LAUNCH, stage=NO_STAGE) == 18


def test_a_thread_of_its_own_and_a_stream_go_before_the_process(probes: Probes, workload: Workload) -> None:
    flags = RuleFlag.BY_STREAM
    probes.maps.inference.set_rules(
        workload.pid,
        [
            RuleEntry(0, 0, DECODE, TEXT, flags),
            RuleEntry(workload.pid, 0, PREFILL, TEXT, flags),
            RuleEntry(0, 0xA1, VISION, IMAGE),
            RuleEntry(workload.pid, 0xA2, SAMPLE, TEXT),
        ],
    )
    workload.launch(2)
    workload.launch(3, 0xA1)
    workload.launch(5, 0xA2)
    workload.launch(7)
    workload.do("threads", "-", 2, 11, 0)
    for stage, launches in ((PREFILL, 9), (VISION, 3), (SAMPLE, 5), (DECODE, 22)):
        assert probes.count(workload.pid, LAUNCH, stage=stage) == launches


@pytest.mark.parametrize("how", [0, 1, 2], ids=["module", "kernel", "function of a kernel"])
def test_a_function_is_known_by_name_and_hash(probes: Probes, workload: Workload, how: int) -> None:
    same, other = "k" * 281 + "a", "k" * 281 + "b"
    workload.do("named", "flash_fwd", 1, 0, how)
    workload.do("named", same, 1, 0, how)
    workload.do("named", other, 1, 0, how)
    found = [each for each in probes.maps.inference.functions() if each.pid == workload.pid]
    assert {each.name for each in found} == {"flash_fwd", "k" * 47}
    hashes = {each.name_hash for each in found}
    assert len(hashes) == 3
    fnv = 0xCBF29CE484222325
    for byte in b"flash_fwd":
        fnv = (fnv ^ byte) * 0x100000001B3 % 2**64
    assert fnv in hashes


def test_learning_counts_marked_launches_by_function_and_stage(probes: Probes, workload: Workload) -> None:
    workload.do("stage_begin", "-", DECODE, 0, 0)
    workload.do("named", "decode_attention", 5, 0, 0)
    probes.maps.learn(True)
    try:
        workload.do("named", "decode_attention", 53, 0, 0)
        workload.do("named", "gemm", 7, 0, 1)
        workload.call("graph", 3, 0)
    finally:
        probes.maps.learn(False)
    workload.do("named", "gemm", 7, 0, 0)
    names = {e.handle: e.name for e in probes.maps.inference.functions() if e.pid == workload.pid}
    names[GRAPH_HANDLE] = "graphs"
    counts = probes.maps.inference.counts()
    assert sorted((names[handle], *rest) for pid, handle, *rest in counts if pid == workload.pid) == [
        ("decode_attention", DECODE, TEXT, 53),
        ("gemm", DECODE, TEXT, 7),
        ("graphs", DECODE, TEXT, 3),
    ]


def test_an_anchor_sets_the_phase_and_shared_functions_keep_it(probes: Probes, workload: Workload) -> None:
    for name in ("prefill_attention", "decode_attention", "gemm", "resize"):
        workload.do("named", name, 0, 0, 0)
    handles = handles_of(probes, workload)
    decisions = {
        handles["prefill_attention"]: anchor(PREFILL),
        handles["decode_attention"]: anchor(DECODE),
        handles["gemm"]: shared(PREFILL, DECODE),
        handles["resize"]: shared(VISION, SAMPLE),
    }
    assert probes.maps.inference.decide(workload.pid, decisions) == 4
    probes.maps.inference.set_rules(workload.pid, [RuleEntry(flags=RuleFlag.BY_FUNCTION)])

    def launch(name: str, count: int) -> None:
        workload.do("function", "-", count, handles[name])

    launch("gemm", 2)  # no phase yet
    launch("prefill_attention", 3)
    launch("gemm", 5)
    workload.call("wait", 1)  # the next step begins with what both phases launch
    launch("gemm", 7)
    launch("decode_attention", 11)
    launch("gemm", 13)
    workload.do("function", "-", 17, 0xBAD)  # nobody knows it: as its thread
    launch("resize", 19)  # the phase never launches it
    launch("gemm", 23)
    assert probes.count(workload.pid, LAUNCH, stage=PREFILL) == 3 + 5 + 7
    assert probes.count(workload.pid, WAIT, stage=PREFILL) == 1
    assert probes.count(workload.pid, LAUNCH, stage=DECODE) == 11 + 13 + 17
    assert probes.count(workload.pid, LAUNCH, stage=NO_STAGE) == 2 + 19 + 23
    seen = thread_of(probes, workload)
    assert (seen["fingerprint_total"], seen["unattributed_total"]) == (56, 44)


def test_a_function_that_is_looked_up_again_keeps_its_decision(probes: Probes, workload: Workload) -> None:
    workload.do("named", "gemm", 0, 0, 0)
    handle = handles_of(probes, workload)["gemm"]
    probes.maps.inference.decide(workload.pid, {handle: anchor(DECODE)})
    workload.do("named", "gemm", 0, 0, 0)
    (found,) = [each for each in probes.maps.inference.functions() if each.pid == workload.pid]
    assert found.kind is FunctionKind.ANCHOR


def test_steps_with_a_graph_are_told_from_bursts(probes: Probes, workload: Workload) -> None:
    workload.do("decode", "-", 40, 3)
    workload.do("prefill", "-", 6, 100)
    seen = thread_of(probes, workload)
    assert (seen["steps"], seen["graph_steps"], seen["burst_steps"]) == (46, 40, 6)
    probes.maps.inference.set_rules(workload.pid, [RuleEntry(workload.pid, flags=RuleFlag.BY_STEP)])
    workload.do("decode", "-", 10, 3)
    workload.do("prefill", "-", 2, 100)
    assert probes.count(workload.pid, GRAPH, stage=DECODE) == 10
    assert probes.count(workload.pid, LAUNCH, stage=DECODE) == 30 + 32  # until the burst is one
    assert probes.count(workload.pid, LAUNCH, stage=PREFILL) == 68 + 100


def test_launches_under_nvtx_ranges_are_told_from_marks(probes: Probes, workload: Workload) -> None:
    workload.do("stage_begin", "-", DECODE | NVTX, 0, 0)
    workload.launch(31)
    assert probes.threads(workload.pid)[0]["source"] == Source.NVTX
    workload.do("stage_end", "-", DECODE | NVTX, 0, 0)
    workload.do("stage_begin", "-", DECODE, 0, 0)
    workload.launch(5)
    workload.do("stage_end", "-", DECODE, 0, 0)
    assert thread_of(probes, workload)["nvtx_total"] == 31
    assert probes.count(workload.pid, LAUNCH, stage=DECODE) == 36


def test_streams_are_known_in_the_order_of_their_making(probes: Probes, workload: Workload) -> None:
    workload.do("stream", "-", 100, 0)
    workload.do("stream", "-", 0, 5)
    found = [each for each in probes.maps.inference.streams() if each.pid == workload.pid]
    assert [each.priority for each in found] == [0, -5]
    assert [each.handle for each in found] == [0x5700 + 16 + 100, 0x5700 + 11]


def test_a_phase_without_its_anchor_ends(probes: Probes, workload: Workload) -> None:
    workload.launch(0)
    probes.maps.inference.set_rules(workload.pid, [RuleEntry(flags=RuleFlag.BY_FUNCTION)])
    assert probes.maps.inference.decide(workload.pid, {GRAPH_HANDLE: anchor(DECODE)}) == 1
    workload.call("graph", 1, 0)
    workload.launch(PHASE_LAUNCHES + 9)
    assert probes.count(workload.pid, LAUNCH, stage=DECODE) == PHASE_LAUNCHES
    assert probes.count(workload.pid, LAUNCH, stage=NO_STAGE) == 9
