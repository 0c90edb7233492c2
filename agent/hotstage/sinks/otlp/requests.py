# SPDX-License-Identifier: Apache-2.0
"""One finished request as its kernel row tells it: when it ran, what it went through. Pure, no OpenTelemetry.

Of a stage the kernel keeps the last begin, the sum of all its durations and how often it ran: for a stage
that ran once that is its interval, for others it is not, and none is made up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotstage.frame.entity import Entity
from hotstage.stages.critical_path import WAITS
from hotstage.stages.labels import OwnNames, own_stage_name
from hotstage.stages.lora import lora_module_of, lora_rank_of
from hotstage.stages.segment_parts import waits_of
from hotstage.stages.spans import OUTCOME_ERROR, modality_of_masks
from hotstage.stages.stage import Stage, modality_name
from hotstage.stages.waterfall import OUTCOMES, RequestTimes
from hotstage.text import clean_name

_NO_NAMES: OwnNames = {}


@dataclass(frozen=True, slots=True)
class StageRuns:
    """All runs of one stage in one request. Times are CLOCK_MONOTONIC ns."""

    stage: str
    modality: str
    began_ns: int
    """Of the last run, ended or not."""
    total_ns: int
    """Of the `count` runs that ended."""
    count: int
    is_open: bool
    tokens: int
    critical_ns: int = 0
    """Of the request's duration, what it decided."""
    waits: tuple[tuple[str, float], ...] = ()
    """What its threads waited for, in seconds, as far as it is known."""

    @property
    def interval_ns(self) -> tuple[int, int] | None:
        """(begin, end) of a stage that ran once; None where nobody knows."""
        if self.count != 1 or self.is_open:
            return None
        return self.began_ns, self.began_ns + self.total_ns


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """`stages` are those that ended at least once or were open at the end, in pipeline order."""

    id: str
    key: bytes
    endpoint: str
    instance: str
    model: str
    modality: str
    pid: int
    gpu_uuid: str | None
    started_ns: int
    ended_ns: int
    outcome: str
    launches: float
    call_errors: int
    output_tokens: int
    stages: tuple[StageRuns, ...]
    waits: tuple[tuple[str, float], ...] = ()
    """Between its stages, in seconds, by kind."""
    ttft_seconds: float | None = None
    ttft_basis: str | None = None
    itl_seconds: float | None = None
    lora_rank: int | None = None
    lora_module: str | None = None

    @classmethod
    def of(
        cls,
        row: Any,
        gpu_of_pid: Mapping[int, str],
        own_names: OwnNames = _NO_NAMES,
        worked_out: tuple[RequestTimes, int] | None = None,
    ) -> FinishedRequest:
        """From a row of FINISHED_DTYPE. Its strings come from hostile processes and are cleaned.

        `worked_out`: the times of several rows, and the place of this one among them.
        """
        outcome, pid = int(row["outcome"]), int(row["tgid"])
        times, at = worked_out or (RequestTimes.of(np.array([row], row.dtype)), 0)
        masks = np.array([row["stage_mask"] | row["open_mask"]], np.uint64)
        return cls(
            id=clean_name(row["id"]),
            key=key_of(row),
            endpoint=clean_name(row["endpoint"]),
            instance=clean_name(row["instance"]),
            model=clean_name(row["model"]),
            modality=modality_name(int(modality_of_masks(masks)[0])),
            pid=pid,
            gpu_uuid=gpu_of_pid.get(pid),
            started_ns=int(row["started_ns"]),
            ended_ns=max(int(row["ended_ns"]), int(row["started_ns"])),
            outcome=OUTCOMES[outcome] if outcome < len(OUTCOMES) else "unknown",
            launches=float(row["launches"]),
            call_errors=int(row["errors"]),
            output_tokens=int(row["output_tokens"]),
            stages=_stages(row, times, at, own_names),
            waits=tuple(
                (name, ns / 1e9)
                for name, ns in zip(WAITS[1:], times.path.waits_ns()[at, 1:].tolist(), strict=True)
                if ns
            ),
            ttft_seconds=times.ttft_seconds(at),
            ttft_basis=times.ttft_basis(at),
            itl_seconds=times.itl_seconds(at),
            lora_rank=lora_rank_of(row),
            lora_module=lora_module_of(row),
        )

    @property
    def spans(self) -> int:
        """How many it makes: its own and one a stage that ended."""
        return 1 + sum(1 for runs in self.stages if runs.count)

    @property
    def input_tokens(self) -> int | None:
        """What the model was prefilled with, where the server said so."""
        counts = (runs.tokens for runs in self.stages if runs.stage == Stage.llm_prefill.name)
        return next(counts, 0) or None

    def is_of(self, entity: Entity) -> bool:
        """Whether it went through this thing: every part that the entity names is the request's too."""
        if entity.pci_bus_id is not None and entity.gpu_uuid is None:
            return False
        parts = (
            (entity.endpoint, self.endpoint),
            (entity.instance, self.instance),
            (entity.pid, self.pid),
            (entity.gpu_uuid, self.gpu_uuid),
        )
        if any(wanted is not None and wanted != own for wanted, own in parts):
            return False
        if entity.stage is None and entity.modality is None:
            return True
        return any(
            entity.stage in (None, runs.stage) and entity.modality in (None, runs.modality)
            for runs in self.stages
        )


def has_failed(row: Any) -> bool:
    """Whether a row of FINISHED_DTYPE tells of an error: the request's own, or of a CUDA call in it."""
    return bool(row["outcome"] == OUTCOME_ERROR or row["errors"])


def key_of(row: Any) -> bytes:
    """16 bytes that are this request's and no other's: an id used again is another request."""
    identity = np.array([row["cgroup_id"], row["request_hash"], row["started_ns"]], np.uint64).tobytes()
    return hashlib.blake2b(identity, digest_size=16, person=b"hotstage-trace").digest()


def _stages(row: Any, times: RequestTimes, at: int, own_names: OwnNames) -> tuple[StageRuns, ...]:
    slots, pid = row["stages"], int(row["tgid"])
    used = np.flatnonzero((slots["count"] > 0) | (slots["open"] > 0)).tolist()
    return tuple(
        StageRuns(
            stage=own_stage_name(own_names, pid, int(times.line.stage_ids[at, slot])),
            modality=modality_name(int(slots["modality"][slot])),
            began_ns=int(slots["began_ns"][slot]),
            total_ns=int(slots["total_ns"][slot]),
            count=int(slots["count"][slot]),
            is_open=bool(slots["open"][slot]),
            tokens=int(slots["tokens"][slot]),
            critical_ns=int(times.path.decided_ns[at, slot]),
            waits=waits_of(slots[slot]),
        )
        for slot in used
    )
