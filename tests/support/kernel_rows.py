# SPDX-License-Identifier: Apache-2.0
"""Rows as the kernel would have them, by name instead of by byte."""

from __future__ import annotations

import numpy as np

from hotstage.probes.maps.layout import (
    CALL_EVENT_DTYPE,
    FINISHED_DTYPE,
    REQUEST_DTYPE,
    THREAD_DTYPE,
    UNKNOWN_US,
)
from hotstage.probes.samples import FastSample
from hotstage.stages.stage import Modality, Stage

MS = 1_000_000
SECOND = 1_000_000_000


WAITS = ("run_queue_us", "sync_us", "copy_us", "alloc_us")


class KernelRequest:
    """One entry of `pipeline_state`, changed as the marks program would change it by spans."""

    def __init__(self, number, *, at_ns, pid=100, cgroup=1, endpoint="/v1/chat", instance="i-0"):
        self.row = np.zeros(1, REQUEST_DTYPE)[0]
        self.row["request_hash"], self.row["cgroup_id"] = number, cgroup
        self.row["started_ns"], self.row["tgid"] = at_ns, pid
        self.row["id"], self.row["endpoint"] = f"r-{number}".encode(), endpoint.encode()
        self.row["instance"], self.row["model"] = instance.encode(), b"vlm"

    def begin(self, stage, at_ns, *, modality=Modality.text, tokens=0):
        slot = self.row["stages"][stage]
        if not slot["open"] and not slot["count"]:
            for name in WAITS:
                slot[name] = UNKNOWN_US
        slot["began_ns"], slot["open"], slot["modality"] = at_ns, slot["open"] + 1, modality
        slot["tokens"] += tokens
        self.row["open_mask"] |= np.uint64(1 << stage)
        return self._mark(stage, at_ns, modality)

    def end(self, stage, at_ns):
        slot = self.row["stages"][stage]
        slot["total_ns"] += np.uint64(at_ns) - slot["began_ns"]
        slot["open"], slot["count"] = slot["open"] - 1, slot["count"] + 1
        self.row["open_mask"] &= ~np.uint64(1 << stage)
        self.row["stage_mask"] |= np.uint64(1 << stage)
        return self._mark(stage, at_ns, slot["modality"])

    def _mark(self, stage, at_ns, modality):
        if modality > Modality.unknown:
            return self
        word = np.uint64(stage << 56 | at_ns >> 8)
        self.row["modality_words"][modality] = word
        if not self.row["modality_first_words"][modality]:
            self.row["modality_first_words"][modality] = word
        return self

    def finished(self, at_ns, outcome=0, output_tokens=0):
        row = np.zeros(1, FINISHED_DTYPE)[0]
        for name in REQUEST_DTYPE.names:
            row[name] = self.row[name]
        row["kind"], row["outcome"], row["ended_ns"], row["output_tokens"] = 1, outcome, at_ns, output_tokens
        return row


def thread(tid, *, pid=100, launches=0, unattributed=0, call=0, since_ns=0, stage=255):
    row = np.zeros(1, THREAD_DTYPE)[0]
    row["tid"], row["tgid"], row["launch_total"], row["unattributed_total"] = tid, pid, launches, unattributed
    row["call"], row["since_ns"], row["stage"], row["modality"] = call, since_ns, stage, Modality.unknown
    return row


def sample(at_ns, *, requests=(), finished=(), threads=(), losses=None, xids=(), unclean=0):
    return FastSample(
        at_ns=at_ns,
        threads=np.array(list(threads), THREAD_DTYPE),
        requests=np.array([getattr(each, "row", each) for each in requests], REQUEST_DTYPE),
        finished=np.array(list(finished), FINISHED_DTYPE),
        xids=tuple(xids),
        events=np.zeros(0, CALL_EVENT_DTYPE),
        losses=losses or {},
        unclean=unclean,
    )


__all__ = ["MS", "SECOND", "KernelRequest", "Modality", "Stage", "sample", "thread"]
