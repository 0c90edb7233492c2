# SPDX-License-Identifier: Apache-2.0
"""numpy dtypes equal, byte for byte, to the structures of bpf/include/abi.h; no logic.

`THREAD_DTYPE`, `REQUEST_DTYPE` are a key and its value as one row. tests/bpf compares all of them with BTF.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

from hotstage.probes.maps.bursts import THREAD_FIELDS

NO_STAGE = 255
NO_DEVICE = 255
MODALITIES = 6
STAGE_SLOTS = 24
OWN_SLOTS = 6
"""The last slots of a request are of stages that its server made up; `own_stages` says which."""
OWN_STAGE, OWN_LAST = 32, 63
"""Ids of such stages; each process gives its own."""
CONTEXTS = 4
BATCH_MEMBERS = 64
UNKNOWN_US = 0xFFFFFFFF
"""Of a wait: no thread worked for the stage by name, or the kernel does not tell."""
UNKNOWN_NS = 0xFFFFFFFFFFFFFFFF
OUTER_FRAMES = 4
CALLS_MAX = 512
HISTOGRAM_SLOTS = 242
HISTOGRAM_SCALE = 3
HISTOGRAM_FIRST_EXPONENT = -22
"""The slot after the underflow begins at 2^-22 s; each octave has 2^3 slots."""


class Loss(IntEnum):
    """Index into the `losses` map; the lower-case name is what metrics and reports show."""

    LOST_EVENTS_RING = 0
    LOST_URGENT_RING = 1
    LOST_CALL_KEYS = 2
    LOST_THREADS = 3
    LOST_REQUESTS = 4
    LOST_HISTOGRAMS = 5
    LOST_FRAMES = 6
    MISSED_REQUEST = 7
    REUSED_REQUEST = 8
    STALE_FRAMES = 9
    UNMATCHED_RETURNS = 10
    UNREADABLE_ARGUMENTS = 11
    LOST_CONTEXTS = 12
    LOST_REQUESTS_QUOTA = 13
    LOST_QUOTAS = 14
    LOST_OWN_STAGES = 15
    LOST_STAGE_NAMES = 16
    LOST_REQUEST_CONTEXTS = 17
    LOST_BATCHES = 18
    UNMATCHED_BATCHES = 19
    REFUSED_TOKENS = 20
    LOST_FUNCTIONS = 21
    LOST_NVTX_RANGES = 22
    LOST_ALLOCATIONS = 23
    UNMATCHED_FREES = 24
    LOST_BLOCKS = 25
    LOST_STREAM_USERS = 26
    LOST_SCHEDULING = 27
    LOST_DRIVER_EVENTS = 28
    LOST_STACKS = 29
    LOST_COMMUNICATORS = 30
    LOST_BATCH_SIZES = 31
    LOST_BURSTS = 32
    LOST_GRAPHS = 33
    LOST_KERNEL_NAMES = 35
    LOST_PENDING_COMMUNICATORS = 36
    LOST_LEDGER_NOTES = 37


LOSS_ROWS = 48


class Source(IntEnum):
    """Why work counts as the stage that it counts as, `enum hotstage_source`."""

    NONE = 0
    MARK = 1
    NVTX = 2
    RULE = 3
    FINGERPRINT = 4


class RuleFlag(IntFlag):
    """How launches without mark and rule find their stage, `HOTSTAGE_RULES_…`."""

    BY_STREAM = 1
    BY_FUNCTION = 2
    BY_STEP = 4
    BY_WORK = 8


class FunctionKind(IntEnum):
    """What a launched function says of its thread, `enum hotstage_function_kind`."""

    UNKNOWN = 0
    ANCHOR = 1
    SHARED = 2


NULL_STREAM = 2**64 - 1
"""The default stream in `stage_rules`, where 0 says all streams."""
GRAPH_HANDLE = 1
"""All graphs of a process count as one function: an executable graph has no name."""
FUNCTION_IS_GRAPH = 3
FUNCTION_LEARNS = 0x80
PHASE_LAUNCHES = 1024


class EventKind(IntEnum):
    """First word of every ring record."""

    REQUEST_FINISHED = 1
    CALL_SLOW = 2
    CALL_ERROR = 3
    KERNEL_LINE = 4
    BATCH = 5
    TOKEN_CONFLICT = 16


SHARES = 16
"""Maps of which one process may hold a share, `shares.Share`, and room for more."""
SETTINGS_DTYPE = np.dtype(
    [
        ("slow_call_ns", "<u8"),
        ("event_gap_ns", "<u8"),
        ("requests_per_process", "<u4"),
        ("rules_generation", "<u4"),
        ("shares", "<u4", SHARES),
    ]
)
PROCESS_SHARE_DTYPE = np.dtype([("held", "<u8", SHARES)])
CALL_KEY_DTYPE = np.dtype(
    [
        ("tgid", "<u4"),
        ("call", "<u2"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("device", "u1"),
        ("layer", "u1"),
        ("direction", "u1"),
        ("pad", "u1"),
    ]
)
CALL_STAT_DTYPE = np.dtype(
    [
        ("count", "<u8"),
        ("bytes", "<u8"),
        ("errors", "<u8"),
        ("errors_oom", "<u8"),
        ("total_ns", "<u8"),
        ("histogram_slot", "<u4"),
        ("abandoned", "<u4"),
    ]
)
CALL_FRAME_DTYPE = np.dtype(
    [
        ("stack_pointer", "<u8"),
        ("since_ns", "<u8"),
        ("argument", "<u8"),
        ("second_argument", "<u8"),
        ("third_argument", "<u8"),
        ("ordinal", "<u4"),
        ("call", "<u2"),
        ("flags", "<u2"),
    ]
)
_THREAD_STATE_FIELDS = [
    ("tgid", "<u4"),
    ("call", "<u2"),
    ("stage", "u1"),
    ("modality", "u1"),
    ("device", "u1"),
    ("depth", "u1"),
    ("pushed_device", "u1"),
    ("source", "u1"),
    ("ordinal", "<u4"),
    ("since_ns", "<u8"),
    ("stack_pointer", "<u8"),
    ("argument", "<u8"),
    ("stream", "<u8"),
    ("stage_since_ns", "<u8"),
    ("request_hash", "<u8"),
    ("launch_total", "<u8"),
    ("unattributed_total", "<u8"),
    ("bytes_total", "<u8"),
    ("event_ns", "<u8"),
    ("flushed_launch_total", "<u8"),
    ("flushed_bytes_total", "<u8"),
    ("error_total", "<u4"),
    ("flushed_error_total", "<u4"),
    ("context", "<u8"),
    ("pushed_context", "<u8"),
    ("run_delay_ns", "<u8"),
    ("wait_ns", "<u8", (4,)),
    ("in_batch", "u1"),
    ("inferred_stage", "u1"),
    ("inferred_modality", "u1"),
    ("rule_stage", "u1"),
    ("rule_modality", "u1"),
    ("rule_flags", "u1"),
    ("step_flags", "u1"),
    ("launches_since_mark", "u1"),
    ("rules_generation", "<u4"),
    ("phase_launches", "<u4"),
    ("step_launches", "<u4"),
    ("steps", "<u4"),
    ("graph_steps", "<u4"),
    ("burst_steps", "<u4"),
    ("nvtx_total", "<u8"),
    ("rule_total", "<u8"),
    ("fingerprint_total", "<u8"),
    ("second_argument", "<u8"),
    ("third_argument", "<u8"),
    *THREAD_FIELDS,
    ("level_generation", "<u4"),
    ("level", "u1"),
    ("counted_at_entry", "u1"),
    ("is_capturing", "u1"),
    ("group_depth", "u1"),
    ("launch_stream", "<u8"),
    ("streamed_launch_total", "<u8"),
    ("sample_at", "<u4"),
    ("pending_communicators", "<u4"),
    ("runtime_launches", "<u4"),
    ("runtime_pad", "<u4"),
    ("frames", CALL_FRAME_DTYPE, (OUTER_FRAMES,)),
]
THREAD_STATE_DTYPE = np.dtype(_THREAD_STATE_FIELDS)
THREAD_DTYPE = np.dtype([("tid", "<u4"), ("pad_tid", "<u4"), *_THREAD_STATE_FIELDS])

STAGE_SLOT_DTYPE = np.dtype(
    [
        ("began_ns", "<u8"),
        ("total_ns", "<u8"),
        ("run_queue_us", "<u4"),
        ("sync_us", "<u4"),
        ("copy_us", "<u4"),
        ("alloc_us", "<u4"),
        ("tokens", "<u4"),
        ("count", "<u2"),
        ("modality", "u1"),
        ("open", "u1"),
    ]
)
REQUEST_CONTEXT_DTYPE = np.dtype(
    [("context", "<u8"), ("stage_mask", "<u8"), ("device", "<u4"), ("pad", "<u4")]
)
REQUEST_KEY_DTYPE = np.dtype([("cgroup_id", "<u8"), ("request_hash", "<u8")])
_REQUEST_STATE_FIELDS = [
    ("started_ns", "<u8"),
    ("updated_ns", "<u8"),
    ("tgid", "<u4"),
    ("model_id", "<u4"),
    ("stage_mask", "<u8"),
    ("open_mask", "<u8"),
    ("own_stages", "<u8"),
    ("cuda_stream", "<u8"),
    ("launches", "<u8"),
    ("bytes", "<u8"),
    ("errors", "<u4"),
    ("output_tokens", "<u4"),
    ("quota_tgid", "<u8"),
    ("embedding_address", "<u8"),
    ("embedding_dims", "<u4"),
    ("embedding_dtype", "u1"),
    ("embedding_stage", "u1"),
    ("lora_rank", "<u2"),
    ("lora_module", "u1"),
    ("pad", "u1", (3,)),
    ("first_tokens", "<u4"),
    ("last_tokens", "<u4"),
    ("pad_tokens", "<u4"),
    ("first_token_ns", "<u8"),
    ("last_token_ns", "<u8"),
    ("modality_words", "<u8", (MODALITIES,)),
    ("modality_first_words", "<u8", (MODALITIES,)),
    ("contexts", REQUEST_CONTEXT_DTYPE, (CONTEXTS,)),
    ("stages", STAGE_SLOT_DTYPE, (STAGE_SLOTS,)),
    ("id", "S64"),
    ("endpoint", "S48"),
    ("instance", "S32"),
    ("model", "S32"),
    ("traceparent", "S56"),
    ("input_digest", "<u8"),
]
REQUEST_STATE_DTYPE = np.dtype(_REQUEST_STATE_FIELDS)
REQUEST_DTYPE = np.dtype([("cgroup_id", "<u8"), ("request_hash", "<u8"), *_REQUEST_STATE_FIELDS])
FINISHED_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("outcome", "<u4"),
        ("ended_ns", "<u8"),
        ("cgroup_id", "<u8"),
        ("request_hash", "<u8"),
        *_REQUEST_STATE_FIELDS,
    ]
)
CALL_EVENT_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("result", "<i4"),
        ("ended_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("bytes", "<u8"),
        ("stream", "<u8"),
        ("request_hash", "<u8"),
        ("call", "<u2"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("device", "u1"),
        ("pad", "u1", (3,)),
    ]
)
BATCH_MEMBER_DTYPE = np.dtype(
    [("request_hash", "<u8"), ("tokens", "<u4"), ("stage", "u1"), ("modality", "u1"), ("pad", "<u2")]
)
BATCH_DTYPE = np.dtype(
    [
        ("version", "<u4"),
        ("size", "<u4"),
        ("batch_id", "<u8"),
        ("word", "<u8"),
        ("tokens_total", "<u4"),
        ("members", "<u2"),
        ("members_total", "<u2"),
        ("member", BATCH_MEMBER_DTYPE, (BATCH_MEMBERS,)),
    ]
)
BATCH_WORK_DTYPE = np.dtype(
    [
        ("launches", "<u8"),
        ("bytes", "<u8"),
        ("errors", "<u8"),
        ("run_queue_ns", "<u8"),
        ("sync_ns", "<u8"),
        ("copy_ns", "<u8"),
        ("alloc_ns", "<u8"),
    ]
)
BATCH_STATE_DTYPE = np.dtype(
    [
        ("batch_id", "<u8"),
        ("began_ns", "<u8"),
        ("outer_request_hash", "<u8"),
        ("word", "<u8"),
        ("work", BATCH_WORK_DTYPE),
    ]
)
BATCH_EVENT_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("device", "<u4"),
        ("began_ns", "<u8"),
        ("ended_ns", "<u8"),
        ("cgroup_id", "<u8"),
        ("context", "<u8"),
        ("work", BATCH_WORK_DTYPE),
        ("batch", BATCH_DTYPE),
    ]
)
NVTX_NAME_DTYPE = np.dtype([("tgid", "<u4"), ("pad", "<u4"), ("text", "S64")])
NVTX_STACK_DTYPE = np.dtype([("tgid", "<u4"), ("depth", "<u4"), ("words", "<u8", (16,))])
KERNEL_LINE_DTYPE = np.dtype([("kind", "<u4"), ("length", "<u4"), ("at_ns", "<u8"), ("text", "S240")])

STAGE_NAME_KEY_DTYPE = np.dtype([("tgid", "<u4"), ("stage", "<u4")])
STAGE_NAME_DTYPE = np.dtype([("name", "S32")])
STAGE_RULE_KEY_DTYPE = np.dtype([("tgid", "<u4"), ("tid", "<u4"), ("stream", "<u8")])
STAGE_RULE_DTYPE = np.dtype([("stage", "u1"), ("modality", "u1"), ("source", "u1"), ("flags", "u1")])
FUNCTION_KEY_DTYPE = np.dtype([("handle", "<u8"), ("tgid", "<u4"), ("pad", "<u4")])
FUNCTION_STATE_DTYPE = np.dtype(
    [
        ("name_hash", "<u8"),
        ("stage_mask", "<u8"),
        ("stage", "u1"),
        ("modality", "u1"),
        ("kind", "u1"),
        ("pad", "u1", (5,)),
        ("name", "S48"),
    ]
)
STREAM_STATE_DTYPE = np.dtype([("created_ns", "<u8"), ("priority", "<i4"), ("pad", "<u4")])
FUNCTION_COUNT_KEY_DTYPE = np.dtype(
    [("handle", "<u8"), ("tgid", "<u4"), ("stage", "u1"), ("modality", "u1"), ("pad", "u1", (2,))]
)

CONTEXT_KEY_DTYPE = np.dtype([("context", "<u8"), ("tgid", "<u4"), ("pad", "<u4")])
DEVICE_KEY_DTYPE = np.dtype([("tgid", "<u4"), ("ordinal", "<u4")])
DEVICE_UUID_DTYPE = np.dtype([("bytes", "V16")])
