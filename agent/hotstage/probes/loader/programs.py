# SPDX-License-Identifier: Apache-2.0
"""Which program of bpf/ serves which point on which rung, and as what it must be loaded: a table.

The attach type set before load fixes the kind of link: a program loaded for one takes no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotstage.probes.bpf import ATTACH_UPROBE_MULTI, ATTACH_UPROBE_SESSION
from hotstage.probes.loader.base import PointKind, Rung


@dataclass(frozen=True, slots=True)
class Side:
    """A program at a function's entry, at its return, or (session) at both."""

    program: str
    on_return: bool = False
    is_session: bool = False


_TIMED_SESSION = (Side("timed_session", is_session=True),)
# Returns first: a call that begins between both links then has no frame that nothing would ever take off.
_TIMED_PAIR = (Side("timed_exit", on_return=True), Side("timed_enter"))
_OUTER_SESSION = (Side("outer_session", is_session=True),)
_OUTER_PAIR = (Side("outer_exit", on_return=True), Side("outer_enter"))
_COMMUNICATOR_SESSION = (Side("communicator_session", is_session=True),)
_COMMUNICATOR_PAIR = (Side("communicator_exit", on_return=True), Side("communicator_enter"))

_ENTRY_ONLY: dict[PointKind, tuple[Side, ...]] = {
    PointKind.LAUNCH: (Side("launch"),),
    PointKind.KERNEL_REGISTERED: (Side("kernel_registered"),),
    PointKind.STAGE_BEGIN: (Side("mark_stage_begin"),),
    PointKind.STAGE_END: (Side("mark_stage_end"),),
    PointKind.SPAN_BEGIN: (Side("mark_span_begin"),),
    PointKind.SPAN_END: (Side("mark_span_end"),),
    PointKind.REQUEST_BEGIN: (Side("mark_request_begin"),),
    PointKind.REQUEST_END: (Side("mark_request_end"),),
    PointKind.TOKENS: (Side("mark_tokens"),),
    PointKind.STAGE_NAME: (Side("mark_stage_name"),),
    PointKind.BATCH_BEGIN: (Side("mark_batch_begin"),),
    PointKind.BATCH_END: (Side("mark_batch_end"),),
    PointKind.EMBEDDING: (Side("mark_embedding"),),
    PointKind.NVTX_PUSH: (Side("nvtx_push"),),
    PointKind.NVTX_POP: (Side("nvtx_pop"),),
    PointKind.TORCH_REPORT: (Side("torch_report"),),
    PointKind.TORCH_OUT_OF_MEMORY: (Side("torch_out_of_memory"),),
    PointKind.TORCH_MALLOC: (Side("torch_malloc"),),
    PointKind.TORCH_FREE: (Side("torch_free"),),
}

_PAIRS: dict[PointKind, tuple[Side, ...]] = {
    **_ENTRY_ONLY,
    PointKind.TIMED: _TIMED_PAIR,
    PointKind.OUTER: _OUTER_PAIR,
    PointKind.COMMUNICATOR: _COMMUNICATOR_PAIR,
}

PROGRAMS: dict[Rung, dict[PointKind, tuple[Side, ...]]] = {
    Rung.SESSION: {
        **_ENTRY_ONLY,
        PointKind.TIMED: _TIMED_SESSION,
        PointKind.OUTER: _OUTER_SESSION,
        PointKind.COMMUNICATOR: _COMMUNICATOR_SESSION,
    },
    Rung.MULTI: _PAIRS,
    Rung.PERF: _PAIRS,
}

TAKE_OUT = "ledger_take_out"
"""Run by user space, under bcc alone: takes an entry out of the memory ledger."""
DROP_PENDING = "drop_pending"
"""Run by user space: takes out what a thread left that ended within a group of NCCL's."""

MAPS = (
    "settings",
    "call_specs",
    "thread_blank",
    "threads",
    "call_stats",
    "call_histograms",
    "free_histograms",
    "contexts",
    "device_uuids",
    "communicators",
    "pending_communicators",
    "drivers_seen",
    "stage_rules",
    "burst_rings",
    "phase_limits",
    "functions",
    "function_counts",
    "streams",
    "pipeline_state",
    "request_counts",
    "process_shares",
    "stage_names",
    "batches",
    "nvtx_decisions",
    "nvtx_unknown",
    "nvtx_stacks",
    "allocations",
    "memory_sums",
    "memory_stages",
    "memory_pools",
    "primary_contexts",
    "ledger_notes",
    "torch_blocks",
    "torch_segments",
    "torch_devices",
    "level_generation",
    "process_levels",
    "probe_hits",
    "conflict_limits",
    "conflict_counts",
    "conflict_inputs",
    "conflict_latches",
    "stream_users",
    "capture_generation",
    "capturing",
    "captures",
    "graphs",
    "graph_work",
    "names_settings",
    "kernels",
    "unnamed_kernels",
    "call_stacks",
    "events",
    "urgent",
    "losses",
)


def attach_types(rung: Rung) -> dict[str, int]:
    """Program name → expected attach type on this rung (0 = for perf-event links); others are not loaded."""
    if rung is Rung.PERF:
        return {side.program: 0 for sides in PROGRAMS[rung].values() for side in sides}
    return {
        side.program: ATTACH_UPROBE_SESSION if side.is_session else ATTACH_UPROBE_MULTI
        for sides in PROGRAMS[rung].values()
        for side in sides
    }
