# SPDX-License-Identifier: Apache-2.0
"""Pulses written by hand: one process, a few rows, whatever the test is about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hotstage.stages.pulse import NameTable, quiet_pulse
from hotstage.stages.spans import PROCESS_DTYPE, REQUEST_DTYPE, SPAN_DTYPE
from hotstage.stages.stage import NO_STAGE

MS = 1_000_000
SECOND = 1_000_000_000
NAMES = NameTable()
I0, I1 = NAMES.instances.intern("i-0"), NAMES.instances.intern("i-1")
CHAT, VISION = NAMES.endpoints.intern("/v1/chat"), NAMES.endpoints.intern("/v1/vision")


def span(stage, modality, began_ns, duration_ns, *, request=1, pid=100, tokens=0, instance=I0, is_open=False):
    row = np.zeros(1, SPAN_DTYPE)[0]
    row["stage"], row["modality"], row["began_ns"], row["duration_ns"] = (
        stage,
        modality,
        began_ns,
        duration_ns,
    )
    row["label"] = stage
    for wait in ("run_queue_ns", "sync_ns", "copy_ns", "alloc_ns"):
        row[wait] = np.nan
    row["request_hash"], row["pid"], row["tokens"], row["instance"] = request, pid, tokens, instance
    row["is_open"], row["count"], row["endpoint"] = is_open, not is_open, VISION
    return row


def request(number, started_ns, *, ended_ns=0, pid=100, outcome=0, open_mask=0, stage_mask=0, **others):
    row = np.zeros(1, REQUEST_DTYPE)[0]
    row["request_hash"], row["started_ns"], row["ended_ns"], row["pid"] = number, started_ns, ended_ns, pid
    row["outcome"], row["open_mask"], row["stage_mask"] = outcome, open_mask, stage_mask
    row["updated_ns"] = others.get("updated_ns", started_ns)
    row["instance"], row["endpoint"] = others.get("instance", I0), others.get("endpoint", VISION)
    row["modality"], row["output_tokens"] = others.get("modality", 1), others.get("output_tokens", 0)
    return row


def process(pid=100, *, launches=0, open_requests=0, tokens=0, oldest_ns=0, call=0, since_ns=0, **others):
    row = np.zeros(1, PROCESS_DTYPE)[0]
    row["pid"], row["launch_delta"], row["open_requests"] = pid, launches, open_requests
    row["output_tokens_total"], row["oldest_request_ns"] = tokens, oldest_ns
    row["call"], row["call_since_ns"], row["call_tid"] = call, since_ns, others.get("tid", 0)
    row["call_stage"], row["call_modality"] = (
        others.get("call_stage", NO_STAGE),
        others.get("call_modality", 0),
    )
    row["instance"], row["is_dead"] = others.get("instance", I0), others.get("is_dead", False)
    return row


def pulse(at_ns, *, ended=(), open_spans=(), requests_open=(), requests_ended=(), processes=(), **others):
    return replace(
        quiet_pulse(at_ns, names=NAMES),
        ended=np.array(list(ended), SPAN_DTYPE),
        open=np.array(list(open_spans), SPAN_DTYPE),
        requests_open=np.array(list(requests_open), REQUEST_DTYPE),
        requests_ended=np.array(list(requests_ended), REQUEST_DTYPE),
        processes=np.array(list(processes), PROCESS_DTYPE),
        **others,
    )
