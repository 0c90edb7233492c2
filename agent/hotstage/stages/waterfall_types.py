# SPDX-License-Identifier: Apache-2.0
"""What is said of finished requests, field by field: the one definition that JSON, schema and readers share.

Times are RFC 3339 (UTC) with an `_ns` twin in wall-clock ns. What is unknown is null, never 0. Values only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Outcome = Literal["ok", "error", "cancelled", "refused", "unknown"]
Kind = Literal["stage", "wait"]
TtftBasis = Literal["tokens_mark", "decode_begin", "prefill_end"]
Placement = Literal["exact", "first_begin", "earliest", "gap", "sum"]


class StageTime(Struct, frozen=True, gc=False):
    """A stage that has ended at least once, all its runs together."""

    stage: str
    modality: str
    seconds: float
    count: int
    tokens: int


class Slowest(Struct, frozen=True, gc=False):
    """The segment that decided most of a request's duration."""

    name: str
    kind: Kind
    seconds: float
    share: Annotated[float, Meta(description="of the request's duration")]


class RequestRow(Struct, frozen=True, gc=False):
    """A finished request in a list."""

    seq: Annotated[int, Meta(description="in the order of their ends, from 1")]
    id: str
    endpoint: str
    instance: str
    model: str
    modality: Annotated[str, Meta(description="of the encoder that it passed; `mixed` for several")]
    pid: int
    traceparent: str | None
    input_digest: Annotated[str | None, Meta(extra_json_schema={"pattern": "^[0-9a-f]{16}$"})]
    outcome: Outcome
    started_at: Time
    started_at_ns: int
    ended_at: Time
    ended_at_ns: int
    duration_seconds: float
    ttft_seconds: Annotated[float | None, Meta(description="begin of the request to its first output token")]
    ttft_basis: Annotated[
        TtftBasis | None,
        Meta(
            description="what is taken for the first token: the server's first word of output tokens, the "
            "begin of llm_decode after the end of llm_prefill, or that end where the begin is unknown"
        ),
    ]
    itl_seconds: Annotated[
        float | None,
        Meta(description="(last − first token) ÷ (output tokens − 1); null below two tokens"),
    ]
    output_tokens: int
    launches: Annotated[float, Meta(description="its own, and its shares of batches by tokens")]
    errors: int
    lora_rank: Annotated[int | None, Meta(description="null: no adapter, or nobody said")]
    lora_module: Annotated[str | None, Meta(description="what the adapter changes, as `q_proj`")]
    slowest: Slowest | None
    stages: list[StageTime]


class Requests(Struct, frozen=True):
    """Finished requests; `next` is where a reader goes on."""

    requests: list[RequestRow]
    next: int
    totals: dict[str, int]


class Parts(Struct, frozen=True, gc=False):
    """What a synchronous stage's threads did of its time; `host` is what no wait took."""

    run_queue_seconds: Annotated[float | None, Meta(description="ready, without a CPU; null: not told")]
    sync_seconds: Annotated[float | None, Meta(description="in calls that wait for the GPU")]
    copy_seconds: Annotated[float | None, Meta(description="in calls that copy")]
    alloc_seconds: Annotated[float | None, Meta(description="in calls that allocate or free")]
    host_seconds: Annotated[
        float | None,
        Meta(description="the rest, at least 0: a wait for a CPU within a call counts as both"),
    ]


class SegmentContext(Struct, frozen=True, gc=False):
    """A CUDA context that a stage ran in."""

    context: Annotated[int, Meta(description="the CUcontext handle")]
    ordinal: Annotated[int | None, Meta(description="the device as its process counts; null: unknown")]
    uuid: Annotated[str | None, Meta(description="null: the process never asked the driver for it")] = None


class Segment(Struct, frozen=True, gc=False):
    """A stage of a request, or a wait between two of them, on the request's own clock."""

    kind: Kind
    name: Annotated[
        str,
        Meta(
            description="a stage's name; of a wait: `queue` (before a stage that a worker takes, or the "
            "marked stage of this name), `delivery` (what is made waits to be taken on, or for the request's "
            "end), `unmarked` (nobody can say)"
        ),
    ]
    modality: str | None
    offset_seconds: Annotated[
        float,
        Meta(description="from the request's begin; of several runs no later than the first of them began"),
    ]
    duration_seconds: Annotated[
        float, Meta(description="of a stage that ran several times: the sum of its runs")
    ]
    until_seconds: Annotated[
        float,
        Meta(
            description="from the request's begin to the end of the segment, which is at most the request's. "
            "Of several runs: no earlier than the last of them ended; what lies between the two is more than "
            "they took"
        ),
    ]
    last_begin_seconds: Annotated[
        float | None, Meta(description="of several runs: when the last of them began; null for all others")
    ]
    placement: Annotated[
        Placement,
        Meta(
            description="`exact`: ran once, or was open at the end. Of several runs the kernel keeps the "
            "last begin and the sum: they lie somewhere between offset and until, which are bounds. "
            "`first_begin`: the offset is the first run's begin; `earliest`: it is no later than that. "
            "`gap`: between two stages, exact. `sum`: a gap that hides such runs; the duration is what they "
            "leave of it"
        ),
    ]
    critical_seconds: Annotated[
        float,
        Meta(description="of the request's duration, decided by this segment; over all, they add up to it"),
    ]
    before_first_token_seconds: Annotated[
        float | None, Meta(description="the same of the time to the first token; null: that is unknown")
    ]
    decides_end: Annotated[bool, Meta(description="the last segment of the critical path")]
    runs: Annotated[int | None, Meta(description="of a stage: ends; null for a wait")]
    is_open: Annotated[bool, Meta(description="never ended: lasts to the request's end")]
    tokens: Annotated[int | None, Meta(description="null: nobody said")]
    after: Annotated[str | None, Meta(description="of a gap: the stage before it; null: the request's begin")]
    before: Annotated[str | None, Meta(description="of a gap: the stage after it; null: the request's end")]
    parts: Annotated[
        Parts | None, Meta(description="null: nothing told, as for spans, or nothing waited for")
    ]
    contexts: Annotated[list[SegmentContext] | None, Meta(description="null: unknown, or none")]


class Waterfall(Struct, frozen=True, gc=False):
    """A finished request's stages and waits by their begin."""

    request: RequestRow
    segments: list[Segment]
