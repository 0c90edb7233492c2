# SPDX-License-Identifier: Apache-2.0
"""The numpy dtypes and the objects' BTF agree: names, offsets, sizes, enumerators."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from tests.bpf.conftest import SOURCES

from hotstage.probes.catalogue.spec import ContextEnd, Effect, Graph, Memory, Step, Wait
from hotstage.probes.maps import (
    bursts,
    communicators,
    conflict,
    driver,
    graphs,
    layout,
    ledger,
    ledger_notes,
    names,
    scheduling,
    torch,
)
from hotstage.probes.maps.call_spec import CALL_SPEC_DTYPE
from hotstage.probes.maps.shares import Share

STRUCTURES = {
    "event_count": driver.EVENT_COUNT_DTYPE,
    "fence_key": driver.FENCE_KEY_DTYPE,
    "open_fence": driver.OPEN_FENCE_DTYPE,
    "timeline_key": driver.TIMELINE_KEY_DTYPE,
    "timeline_stat": driver.TIMELINE_STAT_DTYPE,
    "wait_stat": driver.WAIT_STAT_DTYPE,
    "gpu_memory_key": driver.GPU_MEMORY_KEY_DTYPE,
    "gpu_memory": driver.GPU_MEMORY_DTYPE,
    "gpu_file_key": driver.GPU_FILE_KEY_DTYPE,
    "ioctl_key": driver.IOCTL_KEY_DTYPE,
    "ioctl_stat": driver.IOCTL_STAT_DTYPE,
    "oom_event": driver.OOM_EVENT_DTYPE,
    "xid_event": driver.XID_EVENT_DTYPE,
    "ioctl_event": driver.IOCTL_EVENT_DTYPE,
    "call_spec": CALL_SPEC_DTYPE,
    "hotstage_settings": layout.SETTINGS_DTYPE,
    "process_share": layout.PROCESS_SHARE_DTYPE,
    "call_key": layout.CALL_KEY_DTYPE,
    "call_stat": layout.CALL_STAT_DTYPE,
    "call_frame": layout.CALL_FRAME_DTYPE,
    "thread_state": layout.THREAD_STATE_DTYPE,
    "burst": bursts.BURST_DTYPE,
    "burst_ring": bursts.BURST_RING_DTYPE,
    "phase_limits": bursts.PHASE_LIMITS_DTYPE,
    "stage_slot": layout.STAGE_SLOT_DTYPE,
    "request_context": layout.REQUEST_CONTEXT_DTYPE,
    "batch_member": layout.BATCH_MEMBER_DTYPE,
    "hotstage_batch": layout.BATCH_DTYPE,
    "batch_work": layout.BATCH_WORK_DTYPE,
    "batch_state": layout.BATCH_STATE_DTYPE,
    "batch_event": layout.BATCH_EVENT_DTYPE,
    "stage_name_key": layout.STAGE_NAME_KEY_DTYPE,
    "stage_name": layout.STAGE_NAME_DTYPE,
    "nvtx_name": layout.NVTX_NAME_DTYPE,
    "nvtx_stack": layout.NVTX_STACK_DTYPE,
    "request_key": layout.REQUEST_KEY_DTYPE,
    "request_state": layout.REQUEST_STATE_DTYPE,
    "request_event": layout.FINISHED_DTYPE,
    "call_event": layout.CALL_EVENT_DTYPE,
    "communicator_key": communicators.COMMUNICATOR_KEY_DTYPE,
    "communicator": communicators.COMMUNICATOR_DTYPE,
    "pending_key": communicators.PENDING_KEY_DTYPE,
    "pending_communicator": communicators.PENDING_DTYPE,
    "context_key": layout.CONTEXT_KEY_DTYPE,
    "stage_rule_key": layout.STAGE_RULE_KEY_DTYPE,
    "stage_rule": layout.STAGE_RULE_DTYPE,
    "function_key": layout.FUNCTION_KEY_DTYPE,
    "function_state": layout.FUNCTION_STATE_DTYPE,
    "function_count_key": layout.FUNCTION_COUNT_KEY_DTYPE,
    "stream_state": layout.STREAM_STATE_DTYPE,
    "device_key": layout.DEVICE_KEY_DTYPE,
    "device_uuid": layout.DEVICE_UUID_DTYPE,
    "kernel_line_event": layout.KERNEL_LINE_DTYPE,
    "allocation_key": ledger.ALLOCATION_KEY_DTYPE,
    "allocation": ledger.ALLOCATION_DTYPE,
    "memory_key": ledger.MEMORY_KEY_DTYPE,
    "memory_sum": ledger.MEMORY_SUM_DTYPE,
    "memory_stage_key": ledger.MEMORY_STAGE_KEY_DTYPE,
    "memory_stage": ledger.MEMORY_STAGE_DTYPE,
    "memory_pool": ledger.MEMORY_POOL_DTYPE,
    "primary_context": ledger.PRIMARY_CONTEXT_DTYPE,
    "ledger_note": ledger_notes.NOTE_DTYPE,
    "cpu_thread": scheduling.CPU_THREAD_STATE_DTYPE,
    "cpu_key": scheduling.CPU_KEY_DTYPE,
    "cpu_stat": scheduling.CPU_STAT_DTYPE,
    "conflict_limits": conflict.LIMITS_DTYPE,
    "conflict_inputs": conflict.INPUTS_DTYPE,
    "conflict_latch": conflict.LATCH_DTYPE,
    "conflict_event": conflict.CONFLICT_EVENT_DTYPE,
    "stream_user": conflict.STREAM_USER_DTYPE,
    "capture_key": graphs.CAPTURE_KEY_DTYPE,
    "capture": graphs.CAPTURE_DTYPE,
    "graph_work": graphs.GRAPH_WORK_DTYPE,
    "torch_block_key": torch.BLOCK_KEY_DTYPE,
    "torch_block": torch.BLOCK_STATE_DTYPE,
    "torch_segment": torch.SEGMENT_STATE_DTYPE,
    "torch_device": torch.DEVICE_STATE_DTYPE,
    "kernel_key": names.KERNEL_KEY_DTYPE,
    "kernel_state": names.KERNEL_STATE_DTYPE,
    "names_settings": names.NAMES_SETTINGS_DTYPE,
    "call_stack": names.CALL_STACK_DTYPE,
}


@pytest.fixture(scope="module")
def btf(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """BTF of abi.h itself: an object keeps only the types that its maps name."""
    machine = subprocess.run(
        ["gcc", "-dumpmachine"], check=True, capture_output=True, text=True
    ).stdout.strip()
    built = tmp_path_factory.mktemp("abi") / "abi.o"
    command = [
        "clang",
        "-g",
        "-O2",
        "-target",
        "bpf",
        f"-I/usr/include/{machine}",
        "-c",
        SOURCES / "abi_types.c",
    ]
    subprocess.run([*command, "-o", built], check=True)
    bpftool = shutil.which("bpftool") or "/usr/sbin/bpftool"
    dump = subprocess.run([bpftool, "-j", "btf", "dump", "file", built], check=True, capture_output=True)
    types: list[dict[str, Any]] = json.loads(dump.stdout)["types"]
    return types


def flat_members(btf: list[dict[str, Any]], structure: dict[str, Any], base: int = 0) -> dict[str, int]:
    """Name → byte offset; `request_key` and `request_state` are taken apart, as in the dtypes."""
    members: dict[str, int] = {}
    for member in structure["members"]:
        offset = base + member["bits_offset"] // 8
        inner = btf[member["type_id"] - 1]
        if inner["kind"] == "STRUCT" and inner["name"] in ("request_key", "request_state"):
            members |= flat_members(btf, inner, offset)
        else:
            members[member["name"]] = offset
    return members


@pytest.mark.parametrize("name", STRUCTURES)
def test_dtype_and_structure_have_the_same_fields_at_the_same_places(
    btf: list[dict[str, Any]], name: str
) -> None:
    dtype = STRUCTURES[name]
    (structure,) = [t for t in btf if t["kind"] == "STRUCT" and t["name"] == name]
    assert structure["size"] == dtype.itemsize
    assert flat_members(btf, structure) == {field: dtype.fields[field][1] for field in dtype.names}


def test_rows_end_in_the_structure_that_follows_the_key() -> None:
    assert layout.THREAD_DTYPE.itemsize == 8 + layout.THREAD_STATE_DTYPE.itemsize
    assert layout.REQUEST_DTYPE.itemsize == 16 + layout.REQUEST_STATE_DTYPE.itemsize


@pytest.mark.parametrize(
    ("enum", "twin", "prefix"),
    [
        ("hotstage_loss", layout.Loss, ""),
        ("hotstage_event_kind", layout.EventKind, "EVENT_"),
        ("hotstage_effect", Effect, "EFFECT_"),
        ("hotstage_wait", Wait, "WAIT_"),
        ("hotstage_source", layout.Source, "SOURCE_"),
        ("hotstage_share", Share, "SHARE_"),
        ("hotstage_step", Step, "STEP_"),
        ("hotstage_function_kind", layout.FunctionKind, "FUNCTION_"),
        ("hotstage_memory", Memory, "MEMORY_"),
        ("hotstage_context_end", ContextEnd, ""),
        ("hotstage_graph", Graph, "GRAPH_"),
        ("hotstage_ledger_note", ledger_notes.Note, "NOTE_"),
        ("hotstage_taken_out", ledger_notes.TakenOut, "TAKEN_"),
        ("hotstage_token_basis", conflict.TokenBasis, "TOKENS_"),
        ("hotstage_conflict_outcome", conflict.Outcome, "CONFLICT_"),
    ],
)
def test_enumerators_agree(btf: list[dict[str, Any]], enum: str, twin: Any, prefix: str) -> None:
    (found,) = [t for t in btf if t["kind"] in ("ENUM", "ENUM64") and t["name"] == enum]
    values = {value["name"]: value["val"] for value in found["values"]}
    for length in ("LOSSES", "WAITS", "SHARES", "MEMORY_KINDS", "CONFLICT_OUTCOMES"):
        values.pop(f"HOTSTAGE_{length}", None)
    assert values == {f"{prefix}{member.name}": member.value for member in twin}


def test_a_histogram_has_as_many_slots_as_the_map_value(btf: list[dict[str, Any]]) -> None:
    (structure,) = [t for t in btf if t["kind"] == "STRUCT" and t["name"] == "call_histogram"]
    assert structure["size"] == layout.HISTOGRAM_SLOTS * np.dtype("<u8").itemsize
