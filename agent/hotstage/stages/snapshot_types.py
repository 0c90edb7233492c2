# SPDX-License-Identifier: Apache-2.0
"""What a snapshot says, field by field: the one definition that JSON, its schema and the readers share.

Times are RFC 3339 (UTC) with an `_ns` twin in wall-clock ns. What is unknown is null, never 0. Values only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
DeviceSource = Literal["context", "thread", "stream", "process"]


class OpenStage(Struct, frozen=True, gc=False):
    """A stage that has begun and not ended."""

    stage: str
    modality: str
    since: Time
    since_ns: int
    age_seconds: float
    tokens: Annotated[int | None, Meta(description="null: nobody said")] = None


class DoneStage(Struct, frozen=True, gc=False):
    """A stage that has ended at least once."""

    stage: str
    modality: str
    seconds: Annotated[float, Meta(description="all its spans together")]
    count: int
    tokens: int | None


class ModalityState(Struct, frozen=True, gc=False):
    """What a request has done in one modality."""

    modality: str
    first_at: Annotated[Time | None, Meta(description="its first mark, to 256 ns")]
    first_at_ns: int | None
    last_at: Annotated[Time | None, Meta(description="its last mark, to 256 ns")]
    last_at_ns: int | None
    last_stage: str | None
    tokens: Annotated[int | None, Meta(description="the largest stage's; null: nobody said")]


class Device(Struct, frozen=True, gc=False):
    """A GPU that a request is on: by the number that its process gives it, and as the host knows it."""

    ordinal: Annotated[int, Meta(description="CUDA's, as the process counts; no index of the host's")]
    uuid: Annotated[str | None, Meta(description="null: the process never asked the driver for it")]
    source: Annotated[DeviceSource, Meta(description="what it is known by; `process` has one device only")]
    stages: Annotated[list[str], Meta(description="that ran on it, so far as contexts tell")] = []
    index: Annotated[
        int | None, Meta(description="NVML's, as the host counts; null: NVML does not list this uuid")
    ] = None


class Context(Struct, frozen=True, gc=False):
    """A CUDA context that served the request, or is its process's on one of its devices."""

    context: Annotated[int, Meta(description="the CUcontext handle")]
    ordinal: Annotated[int | None, Meta(description="null: it was made before the probes were attached")]
    stages: Annotated[
        list[str], Meta(description="of the request that ran in it; empty: it is the process's, no more")
    ] = []


class Embedding(Struct, frozen=True, gc=False):
    """An embedding that the server told of, by reference: where it lies is told to nobody."""

    dims: int
    dtype: str
    stage: str


class Lora(Struct, frozen=True, gc=False):
    """The adapter that the request was served with, as `lora_apply` was opened."""

    rank: int | None
    module: str | None


class ThreadState(Struct, frozen=True, gc=False):
    """A thread that is in a call or a stage."""

    pid: int
    tid: int
    stage: str | None
    modality: str | None
    call: Annotated[str | None, Meta(description="the innermost call that it sits in")]
    since: Annotated[Time, Meta(description="of the call; of the stage where it is in no call")]
    since_ns: int
    age_seconds: float
    cuda_stream: int | None
    device_ordinal: int | None = None
    request_key: Annotated[str | None, Meta(description="the request that it works for")] = None


class RequestState(Struct, frozen=True, gc=False):
    """A request in flight."""

    key: Annotated[str, Meta(description="cgroup, hash of the id and start: the same for one request's life")]
    id: str
    endpoint: str | None
    instance: str | None
    model: str | None
    model_id: int | None
    pid: int
    cgroup_id: int
    started_at: Time
    started_at_ns: int
    updated_at: Annotated[Time, Meta(description="the last mark that spoke of it")]
    updated_at_ns: int
    age_seconds: float
    stage_mask: Annotated[int, Meta(description="bit per stage that has ended, in pipeline order")]
    stages_done: list[str]
    stages: list[DoneStage]
    open: list[OpenStage]
    modalities: list[ModalityState]
    cuda_stream: int | None
    devices: list[Device] | None
    contexts: list[Context] | None
    threads: Annotated[list[ThreadState], Meta(description="threads that work for this request")]
    stage_threads: Annotated[
        list[ThreadState],
        Meta(description="where none does: threads of its process in one of its open stages, longest first"),
    ]
    tokens: Annotated[dict[str, int], Meta(description="by modality, those that somebody said")]
    output_tokens: int
    launches: Annotated[
        float | None,
        Meta(description="with its share of batches; null: nobody has worked for it by name"),
    ]
    bytes: int | None
    errors: int | None
    input_digest: Annotated[str | None, Meta(description="of the input as the server read it")]
    traceparent: str | None
    lora: Lora | None = None
    embedding: Embedding | None = None


class Snapshot(Struct, frozen=True):
    """Requests in flight, oldest first, and the threads in a call or stage, longest first."""

    taken_at: Time
    taken_at_ns: int
    wall_offset_ns: Annotated[int, Meta(description="wall clock minus CLOCK_MONOTONIC, as it was then")]
    requests: list[RequestState]
    requests_total: int
    threads: list[ThreadState]
    threads_total: int
    unclean: Annotated[int, Meta(description="entries that came or went during the read")]
    losses: Annotated[
        dict[str, int], Meta(description="cumulative, those because of which something may be absent")
    ]
