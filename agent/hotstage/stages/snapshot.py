# SPDX-License-Identifier: Apache-2.0
"""The state of every request and thread at one moment, frozen and JSON-ready; no reference to a live object.

Wall-clock times come from the clock that is handed in; strings come from hostile processes and are cleaned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotstage.clock import Clock, rfc3339
from hotstage.probes.samples import FastSample
from hotstage.stages.names import clean_name
from hotstage.stages.stage import NO_STAGE, modality_name, stage_name, stages_in_mask

Document = dict[str, Any]
Row = Any
"""One row of a structured array."""

REQUESTS_MAX = 2000
THREADS_MAX = 2000


def snapshot(sample: FastSample, clock: Clock, call_names: Mapping[int, str]) -> Document:
    """Body of `/v1/snapshot`: oldest requests first, threads that are in a call or stage.

    `requests` and `threads` are cut at 2,000 each; `requests_total` and `threads_total` count all.
    """
    requests = sample.requests[sample.requests["started_ns"] != 0]
    requests = requests[np.argsort(requests["started_ns"], kind="stable")]
    threads = sample.threads
    busy = threads[(threads["call"] != 0) | (threads["stage"] != NO_STAGE)]
    busy = busy[
        np.argsort(np.where(busy["call"] != 0, busy["since_ns"], busy["stage_since_ns"]), kind="stable")
    ]
    return {
        "requests": [_request(row, sample.at_ns, clock) for row in requests[:REQUESTS_MAX]],
        "requests_total": len(requests),
        "threads": [_thread(row, sample.at_ns, clock, call_names) for row in busy[:THREADS_MAX]],
        "threads_total": len(busy),
        "unclean": sample.unclean,
    }


def _request(row: Row, at_ns: int, clock: Clock) -> Document:
    slots = row["stages"]
    used = np.flatnonzero((slots["count"] > 0) | (slots["open"] > 0))
    tokens: dict[str, int] = {}
    for stage in used.tolist():
        modality = modality_name(int(slots["modality"][stage]))
        # Stages of one modality pass the same input on: the largest is the input, not the sum.
        tokens[modality] = max(tokens.get(modality, 0), int(slots["tokens"][stage]))
    return {
        "id": clean_name(bytes(row["id"])),
        "endpoint": clean_name(bytes(row["endpoint"])) or None,
        "instance": clean_name(bytes(row["instance"])) or None,
        "model": clean_name(bytes(row["model"])) or None,
        "model_id": int(row["model_id"]) or None,
        "pid": int(row["tgid"]),
        **_moment("started_at", int(row["started_ns"]), clock),
        "stage_mask": int(row["stage_mask"]),
        "stages_done": list(stages_in_mask(int(row["stage_mask"]))),
        "stages": stage_rows(row),
        "open": [_open(slots[stage], stage, at_ns, clock) for stage in used.tolist() if slots["open"][stage]],
        "cuda_stream": int(row["cuda_stream"]) or None,
        "tokens": {modality: count for modality, count in tokens.items() if count},
        "output_tokens": int(row["output_tokens"]),
        "launches": int(row["launches"]),
        "bytes": int(row["bytes"]),
        "errors": int(row["errors"]),
        "traceparent": clean_name(bytes(row["traceparent"])) or None,
    }


def stage_rows(row: Row) -> list[Document]:
    """Finished stages of one request, in pipeline order, with the time all their spans took together."""
    return [
        {
            "stage": stage_name(slot),
            "modality": modality_name(int(part["modality"])),
            "seconds": int(part["total_ns"]) / 1e9,
            "count": int(part["count"]),
            "tokens": int(part["tokens"]),
        }
        for slot, part in enumerate(row["stages"])
        if part["count"]
    ]


def _open(slot: Row, stage: int, at_ns: int, clock: Clock) -> Document:
    return {
        "stage": stage_name(stage),
        "modality": modality_name(int(slot["modality"])),
        "since_ns": clock.wall_ns_of(int(slot["began_ns"])),
        "age_seconds": _age(int(slot["began_ns"]), at_ns),
    }


def _thread(row: Row, at_ns: int, clock: Clock, call_names: Mapping[int, str]) -> Document:
    call, stage = int(row["call"]), int(row["stage"])
    since_ns = int(row["since_ns"] if call else row["stage_since_ns"])
    return {
        "pid": int(row["tgid"]),
        "tid": int(row["tid"]),
        "stage": None if stage == NO_STAGE else stage_name(stage),
        "modality": None if stage == NO_STAGE else modality_name(int(row["modality"])),
        "call": call_names.get(call, f"call_{call}") if call else None,
        "since_ns": clock.wall_ns_of(since_ns),
        "age_seconds": _age(since_ns, at_ns),
        "cuda_stream": int(row["stream"]) or None,
    }


def _moment(name: str, monotonic_ns: int, clock: Clock) -> Document:
    wall_ns = clock.wall_ns_of(monotonic_ns)
    return {name: rfc3339(wall_ns), f"{name}_ns": wall_ns}


def _age(since_ns: int, at_ns: int) -> float:
    """Seconds, never negative: what began during the read is new."""
    return max(at_ns - since_ns, 0) / 1e9
