# SPDX-License-Identifier: Apache-2.0
"""What the server lets be known of its stages: marks, NVTX ranges, or nothing but threads and kernels.

The line speaks to one of these; none of them changes what is done, or what the truth holds.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any, Protocol

from hotstage.simhost.workload import Arrival, traceparent_of
from hotstage.stages.stage import Modality, Stage


class Mode(StrEnum):
    """Which sign of its stages a server gives; each one lacks the signs before it."""

    marks = "marks"
    nvtx = "nvtx"
    """Ranges by PyPI's `nvtx`, an injection library by environment, no mark of its own."""
    rules = "rules"
    """Threads that are called after what they do."""
    fingerprints = "fingerprints"
    """The kernels alone: threads are all called alike, and any of them may do any stage on a GPU."""
    eager = "eager"
    """Their work alone: one thread prefills and decodes, without graphs; threads are all called alike."""


class RequestHandle(Protocol):
    """A request that has begun."""

    def tokens(self, tokens: int) -> None: ...

    def end(self, outcome: str = ..., output_tokens: int = ...) -> None: ...


class SpanHandle(Protocol):
    """A stage of a request that no thread is bound to."""

    def begin(self) -> Any: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Member:
    """One request's part of a batch step."""

    request_id: str
    modality: Modality
    tokens: int


class Annotations(Protocol):
    """What the line says while it works."""

    def request(self, arrival: Arrival, *, instance: str, model: str) -> RequestHandle: ...

    def stage(
        self, stage: Stage, modality: Modality, tokens: int, request: RequestHandle
    ) -> AbstractContextManager[Any]: ...

    def span(self, stage: Stage, modality: Modality, tokens: int, request: RequestHandle) -> SpanHandle: ...

    def batch(
        self, stage: Stage, modality: Modality, members: Sequence[Member]
    ) -> AbstractContextManager[Any]: ...


class Silence:
    """Nothing is said; stands for a request and a span as well."""

    def request(self, arrival: Arrival, *, instance: str, model: str) -> RequestHandle:
        return self

    def stage(
        self, stage: Stage, modality: Modality, tokens: int, request: RequestHandle
    ) -> AbstractContextManager[Any]:
        return nullcontext()

    def span(self, stage: Stage, modality: Modality, tokens: int, request: RequestHandle) -> SpanHandle:
        return self

    def batch(
        self, stage: Stage, modality: Modality, members: Sequence[Member]
    ) -> AbstractContextManager[Any]:
        return nullcontext()

    def tokens(self, tokens: int) -> None:
        pass

    def begin(self) -> Silence:
        return self

    def end(self, outcome: str = "ok", output_tokens: int = 0) -> None:
        pass


_RANGES = {
    Stage.vision_encode: "vision tower",
    Stage.audio_encode: "whisper encoder",
    Stage.video_encode: "encode_video",
    Stage.cross_modal_align: "mm_projector",
    Stage.llm_prefill: "prefill chunk",
    Stage.llm_decode: "decode step",
}


class Ranges(Silence):
    """NVTX push and pop around synchronous work, named as people name such ranges; nothing about requests."""

    def __init__(self) -> None:
        self._nvtx = _optional("nvtx", "python -m pip install nvtx")
        with self._nvtx.annotate("start"):  # the injection library is loaded at the first range
            pass

    def stage(
        self, stage: Stage, modality: Modality, tokens: int, request: RequestHandle
    ) -> AbstractContextManager[Any]:
        return self._range(stage)

    def batch(
        self, stage: Stage, modality: Modality, members: Sequence[Member]
    ) -> AbstractContextManager[Any]:
        return self._range(stage)

    def _range(self, stage: Stage) -> AbstractContextManager[Any]:
        name = _RANGES.get(stage, stage.name)
        annotation: AbstractContextManager[Any] = self._nvtx.annotate(name)
        return annotation


class Marks:
    """Every stage marked as an engine that knows of hotstage would mark it."""

    def __init__(self) -> None:
        self._marks: Any = importlib.import_module("hotstage_marks")

    def request(self, arrival: Arrival, *, instance: str, model: str) -> RequestHandle:
        handle: RequestHandle = self._marks.request_begin(
            arrival.id,
            endpoint=arrival.endpoint,
            instance=instance,
            model=model,
            traceparent=traceparent_of(arrival.id),
        )
        return handle

    def stage(
        self, stage: Stage, modality: Modality, tokens: int, request: RequestHandle
    ) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self._marks.stage(
            stage.name, modality=modality.name, tokens=tokens, request=request
        )
        return scope

    def span(self, stage: Stage, modality: Modality, tokens: int, request: RequestHandle) -> SpanHandle:
        scope: SpanHandle = self._marks.span(
            stage.name, modality=modality.name, tokens=tokens, request=request
        )
        return scope

    def batch(
        self, stage: Stage, modality: Modality, members: Sequence[Member]
    ) -> AbstractContextManager[Any]:
        """Shares by tokens; the members' own spans last from joining to leaving, over many batches."""
        parts = [(member.request_id, stage.name, member.tokens, member.modality.name) for member in members]
        scope: AbstractContextManager[Any] = self._marks.batch(parts, modality=modality.name, spans=False)
        return scope


def annotations_of(mode: Mode) -> Annotations:
    """What a server of this mode says. Raises ModuleNotFoundError with the remedy where `nvtx` is missing."""
    return Marks() if mode is Mode.marks else Ranges() if mode is Mode.nvtx else Silence()


def _optional(name: str, remedy: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: {remedy}", name=name) from None
