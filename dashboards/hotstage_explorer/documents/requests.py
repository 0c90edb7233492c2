# SPDX-License-Identifier: Apache-2.0
"""`/v1/requests`: finished requests with the time of each stage, gathered over many answers. No I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotstage_explorer.parse import integer, pipeline_place, positive, rows_of, text

KEPT = 4000
_PLAIN_ID = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_.:-]{1,64}")
MAX_STAGES = 64


@dataclass(frozen=True, slots=True)
class StageTime:
    """All spans of one stage of a request together."""

    stage: str
    modality: str
    seconds: float | None
    count: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A finished request; `seq` numbers them for as long as the agent runs."""

    seq: int
    id: str
    endpoint: str
    instance: str
    model: str
    pid: int | None
    outcome: str
    ended_ns: int | None
    duration_seconds: float | None
    output_tokens: int | None = None
    first_token_seconds: float | None = None
    stages: tuple[StageTime, ...] = ()

    @property
    def modalities(self) -> tuple[str, ...]:
        """Those of its stages, `text` last: what was brought besides it is what tells requests apart."""
        found = dict.fromkeys(part.modality for part in self.stages if part.modality != "unknown")
        return tuple(sorted(found, key=lambda name: (name == "text", name == "mixed", name)))

    @property
    def slowest(self) -> StageTime | None:
        """The stage that took most of its time."""
        timed = [part for part in self.stages if part.seconds is not None]
        return max(timed, key=lambda part: part.seconds or 0.0) if timed else None


@dataclass(frozen=True, slots=True)
class RequestList:
    """The newest `KEPT` requests, oldest first; `next` is the number to go on from."""

    rows: tuple[RequestRow, ...] = ()
    next: int = 0
    finished: int | None = None
    open: int | None = None
    refused: int | None = None


def items(rows: Sequence[RequestRow]) -> dict[int, str]:
    """Number → the name under which a link asks for a request: its id where that is plain and nobody else's.

    A number tells one request of a running agent, an id one of the server's, also after the agent's restart.
    """
    seen = Counter(row.id for row in rows)
    return {
        row.seq: row.id if seen[row.id] == 1 and _PLAIN_ID.fullmatch(row.id) else str(row.seq) for row in rows
    }


def requests(content: dict[str, Any], known: RequestList) -> RequestList:
    """An answer joined to what is `known`; an agent that counts from 1 again makes the list begin anew."""
    totals = content.get("totals")
    totals = totals if isinstance(totals, dict) else {}
    new = tuple(row for row in map(request_row, rows_of(content, "requests", KEPT)) if row is not None)
    ended = integer(totals.get("finished"))
    refused = integer(totals.get("refused"))
    has_restarted = ended is not None and ended + (refused or 0) < known.next
    kept = () if has_restarted else known.rows
    last = kept[-1].seq if kept else 0
    joined = (*kept, *(row for row in new if row.seq > last))[-KEPT:]
    return RequestList(
        joined,
        0 if has_restarted and not new else joined[-1].seq if joined else known.next,
        ended,
        integer(totals.get("open")),
        refused,
    )


def request_row(row: dict[str, Any]) -> RequestRow | None:
    """A row; None where it has no number."""
    seq = integer(row.get("seq"))
    if seq is None:
        return None
    stages = sorted(
        (
            StageTime(
                text(part.get("stage"), 48) or "(unnamed)",
                text(part.get("modality"), 24) or "unknown",
                positive(part.get("seconds")),
                integer(part.get("count")),
                integer(part.get("tokens")),
            )
            for part in rows_of(row, "stages", MAX_STAGES)
        ),
        key=lambda part: pipeline_place(part.stage),
    )
    return RequestRow(
        seq,
        text(row.get("id")),
        text(row.get("endpoint")) or "(unnamed)",
        text(row.get("instance")) or "(unnamed)",
        text(row.get("model")),
        integer(row.get("pid")),
        text(row.get("outcome"), 24) or "unknown",
        integer(row.get("ended_at_ns")),
        positive(row.get("duration_seconds")),
        integer(row.get("output_tokens")),
        positive(row.get("ttft_seconds")),
        tuple(stages),
    )
