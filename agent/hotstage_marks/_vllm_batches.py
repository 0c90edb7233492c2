# SPDX-License-Identifier: Apache-2.0
"""vLLM's model runner as marks: which stage the worker's thread is in, and each request's encoder.

Runs in the worker's process (with one GPU that is the engine's), inside the hooks of `GPUModelRunner` and, in
the newer runner, `EncoderRunner`. The thread's stage is what the CUDA calls in between count for:

    execute_model          `llm_prefill` or `llm_decode`, whichever has more of the batch's tokens
    _execute_mm_encoder    inside it: `vision_encode`, `audio_encode`, `video_encode`, by what most inputs are
    sample_tokens          `sample` (in older versions `_sample`, inside execute_model)

The requests' own encoder spans are told by the first worker only, so that tensor parallelism does not repeat
them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import hotstage_marks as marks
from hotstage_marks._hooks import Hook, Memory
from hotstage_marks._vllm_requests import (
    MAX_REQUESTS,
    argument,
    input_modalities,
    modality_named,
    modality_of,
)

_ENCODERS = {"image": "vision_encode", "audio": "audio_encode", "video": "video_encode"}
_NO_REQUEST = ""
"""A batch is no single request's: without it the current request of the context would be taken."""


class BatchBook(Memory):
    """The modality of the requests that this worker holds, and the step that each thread is in."""

    def __init__(self) -> None:
        self._inputs: dict[str, list[str]] = {}
        self._step = threading.local()
        self.encoders: Sequence[Hook] = ()
        """The hooks on encoders: where none is on, a prefill begins with the step, not after the encoder."""

    def forget(self) -> None:
        self._inputs.clear()
        self.is_empty = True

    def executing(self, runner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`execute_model(scheduler_output, …)`: this thread's stage, begun, or None for an empty step."""
        output = argument(args, kwargs, "scheduler_output")
        self._step.awaiting = self._step.encoding = ()
        self._learn(output)
        if kwargs.get("dummy_run") or not output.total_num_scheduled_tokens:
            return None
        if output.scheduled_encoder_inputs and is_first_worker(runner):
            self._step.encoding = output.scheduled_encoder_inputs
            self._step.awaiting = tuple(output.scheduled_encoder_inputs)
            if not any(hook.is_on for hook in self.encoders):
                self._begin_prefills(self._step.awaiting)
        held = (modality_of(self._inputs.get(rid, ())) for rid in output.num_scheduled_tokens)
        return marks.stage(
            phase_of(output),
            modality=modality_of(held),
            tokens=output.total_num_scheduled_tokens,
            request=_NO_REQUEST,
        ).begin()

    def executed(self, _: Any, __: Any, ___: Any, stage: Any, ____: Any) -> None:
        if stage is not None:
            stage.end()
        self._begin_prefills(getattr(self._step, "awaiting", ()))  # whose encoder had it all in its cache
        self._step.encoding = ()

    def encoding(self, runner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`_execute_mm_encoder(scheduler_output)`: (this thread's stage, the requests' spans), or None."""
        inputs = argument(args, kwargs, "scheduler_output").scheduled_encoder_inputs
        if not inputs:
            return None
        known = getattr(runner, "requests", {})
        kinds = {rid: self._kinds_of(rid, indices, known.get(rid)) for rid, indices in inputs.items()}
        kinds = {
            rid: each for rid, each in kinds.items() if set(each) != {"text"}
        }  # embeddings: no encoder runs
        if not kinds:
            return None
        return self._begin_encoders(kinds, is_first_worker(runner))

    def encoding_items(self, _: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`execute_mm_encoder([(modality, item), …])`; whose they are, the step around it knows."""
        items = argument(args, kwargs, "mm_kwargs")
        if not items:
            return None
        every = [modality_named(name) for name, _ in items]
        inputs = getattr(self._step, "encoding", ()) or {}
        kinds = {rid: self._kinds_of(rid, indices, None) or every for rid, indices in inputs.items()}
        return self._begin_encoders(kinds or {_NO_REQUEST: every}, bool(inputs))

    def encoded(self, _: Any, __: Any, ___: Any, note: Any, ____: Any) -> None:
        if note is None:
            return
        stage, spans = note
        stage.end()
        for span in spans.values():
            span.end()
        self._begin_prefills(tuple(spans))

    def sampling(self, _: Any, __: Any, ___: Any) -> Any:
        return marks.stage("sample", modality="text", request=_NO_REQUEST).begin()

    def sampled(self, _: Any, __: Any, ___: Any, stage: Any, ____: Any) -> None:
        if stage is not None:
            stage.end()

    def _learn(self, output: Any) -> None:
        for rid in output.finished_req_ids:
            self._inputs.pop(rid, None)
        for request in output.scheduled_new_reqs:
            kinds = input_modalities(request)
            if kinds and len(self._inputs) < MAX_REQUESTS:
                self._inputs[request.req_id] = kinds
        self.is_empty = not self._inputs

    def _kinds_of(self, rid: str, indices: Sequence[int], request: Any) -> list[str]:
        """The modalities of these inputs of a request; [] where it is not known."""
        kinds = self._inputs.get(rid) or (input_modalities(request) if request is not None else [])
        return [kinds[index] for index in indices if index < len(kinds)]

    def _begin_encoders(self, kinds: dict[str, list[str]], with_requests: bool) -> Any:
        every = [kind for each in kinds.values() for kind in each]
        spans = {}
        for rid, each in kinds.items() if with_requests else ():
            name, modality = encoder_of(each)
            spans[rid] = marks.span(name, modality=modality, tokens=len(each), request=rid).begin()
        name, modality = encoder_of(every)
        return marks.stage(name, modality=modality, tokens=len(every), request=_NO_REQUEST).begin(), spans

    def _begin_prefills(self, rids: Sequence[str]) -> None:
        self._step.awaiting = tuple(rid for rid in getattr(self._step, "awaiting", ()) if rid not in rids)
        for rid in rids:
            modality = modality_of(self._inputs.get(rid, ()))
            marks.span_begin("llm_prefill", modality=modality, request=rid)


def phase_of(output: Any) -> str:
    """`llm_prefill` or `llm_decode`, by which has more tokens in the step; a tie is a prefill.

    A request that goes on decodes one token and its speculated ones; whatever has more, or is new, is a
    prefill.
    """
    new = {request.req_id for request in output.scheduled_new_reqs}
    speculated = output.scheduled_spec_decode_tokens
    decoded = 0
    for rid, count in output.num_scheduled_tokens.items():
        if rid not in new and count <= 1 + len(speculated.get(rid, ())):
            decoded += count
    return "llm_decode" if 2 * decoded > output.total_num_scheduled_tokens else "llm_prefill"


def encoder_of(kinds: Sequence[str]) -> tuple[str, str]:
    """(stage, modality) of a batch of encoder inputs: the stage of the most frequent one."""
    if not kinds:
        return "other", "unknown"
    most = max(kinds, key=kinds.count)
    return _ENCODERS.get(most, "other"), modality_of(kinds)


def is_first_worker(runner: Any) -> bool:
    """Whether this is the worker of rank 0; the only one if it cannot be told."""
    return bool(getattr(getattr(runner, "parallel_config", None), "rank", 0) == 0)
