# SPDX-License-Identifier: Apache-2.0
"""Finished requests as rows of fixed size: time by stage and wait, first token and what decided it. Pure."""

from __future__ import annotations

import numpy as np

from hotstage.frame.rolling import Rows
from hotstage.probes.maps.layout import UNKNOWN_US
from hotstage.stages.critical_path import WAITS, critical_paths
from hotstage.stages.first_token import first_tokens
from hotstage.stages.segment_parts import WAIT_FIELDS
from hotstage.stages.spans import OUTCOME_CANCELLED, OUTCOME_REFUSED, modality_of_masks
from hotstage.stages.stage import STAGE_SLOTS
from hotstage.stages.timeline import timeline_of

GAPS = WAITS[1:]
KERNEL_WAITS = tuple(name.removesuffix("_us") for name in WAIT_FIELDS)
PARTS = STAGE_SLOTS + len(GAPS)
"""Of a time to first token: a column for each slot, then for each kind of gap."""

TIMING_DTYPE = np.dtype(
    [
        ("at_ns", np.uint64),  # its end
        ("pid", np.uint32),
        ("lora_rank", np.uint16),  # 0: not said
        ("lora_module", np.uint8),
        ("modality", np.uint8),
        ("seconds", np.float64),
        ("ttft_seconds", np.float32),  # NaN: unknown, or it makes no tokens
        ("basis", np.uint8),
        ("stage_ids", np.uint8, (STAGE_SLOTS,)),
        ("stages", np.float32, (STAGE_SLOTS,)),  # seconds in each, all runs; NaN: not passed
        ("gaps", np.float32, (len(GAPS),)),  # seconds; NaN: had none
        ("waits", np.float32, (len(KERNEL_WAITS),)),  # seconds within its stages; NaN: not told
        ("early", np.float32, (PARTS,)),  # seconds of its TTFT decided by each; 0 where that is unknown
    ]
)
TOKENS_DTYPE = np.dtype(
    [
        ("at_ns", np.uint64),
        ("modality", np.uint8),
        ("ttft_seconds", np.float64),
        ("itl_seconds", np.float64),
    ]
)


def reduced(finished: Rows) -> tuple[Rows, Rows]:
    """FINISHED_DTYPE (R,) → TIMING_DTYPE and TOKENS_DTYPE of those that are judged."""
    outcome = finished["outcome"]
    finished = finished[(outcome != OUTCOME_CANCELLED) & (outcome != OUTCOME_REFUSED)]
    line = timeline_of(finished)
    tokens = first_tokens(finished, line)
    has_first = tokens.ttft_ns >= 0
    path, early = critical_paths(line, np.where(has_first, tokens.ttft_ns, 0))
    rows = np.zeros(len(finished), TIMING_DTYPE)
    rows["at_ns"], rows["pid"] = finished["ended_ns"], finished["tgid"]
    for name in ("lora_rank", "lora_module"):
        rows[name] = finished[name]
    rows["modality"] = modality_of_masks(finished["stage_mask"] | finished["open_mask"])
    rows["seconds"] = line.duration_ns / 1e9
    rows["ttft_seconds"], rows["basis"] = np.where(has_first, tokens.ttft_ns / 1e9, np.nan), tokens.basis
    rows["stage_ids"] = line.stage_ids
    slots = finished["stages"]
    rows["stages"] = np.where(slots["count"] > 0, slots["total_ns"] / 1e9, np.nan)
    gaps = path.waits_ns()[:, 1:]
    rows["gaps"] = np.where(gaps > 0, gaps / 1e9, np.nan)
    rows["waits"] = _kernel_waits(slots)
    rows["early"][:, :STAGE_SLOTS] = early.decided_ns / 1e9
    rows["early"][:, STAGE_SLOTS:] = early.waits_ns()[:, 1:] / 1e9
    return rows, _token_rows(rows, tokens.itl_seconds)


def _token_rows(rows: Rows, itl_seconds: Rows) -> Rows:
    found = np.zeros(len(rows), TOKENS_DTYPE)
    for name in ("at_ns", "modality", "ttft_seconds"):
        found[name] = rows[name]
    found["itl_seconds"] = itl_seconds
    return found


def _kernel_waits(slots: Rows) -> Rows:
    """(R, 4) seconds of each wait over all stages that told it; NaN where none did."""
    found = np.full((len(slots), len(WAIT_FIELDS)), np.nan)
    for place, name in enumerate(WAIT_FIELDS):
        is_told = (slots[name] != UNKNOWN_US) & (slots["count"] > 0)
        told = np.where(is_told, slots[name], 0).sum(axis=1) / 1e6
        found[:, place] = np.where(is_told.any(axis=1), told, np.nan)
    return found
