# SPDX-License-Identifier: Apache-2.0
"""vLLM's model runner as marks: which stage the worker's thread is in, for whom, and each request's encoder.

Runs in the worker's process (with one GPU that is the engine's), inside the hooks of `GPUModelRunner` and,
in the newer runner, `EncoderRunner`. Each is a batch: the thread's stage is what the CUDA calls in between
count for, and the members share them by their tokens:

    execute_model          `llm_prefill` or `llm_decode`, whichever has more of the batch's tokens; each
                           member has its scheduled tokens
    _execute_mm_encoder    in between: `vision_encode`, `audio_encode`, `video_encode`, by what most inputs
                           are; each member has as many tokens as inputs
    sample_tokens          `sample`, the same for each member (in older versions `_sample`: a stage of the
                           batch that it runs in)

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
        """`execute_model(scheduler_output, …)`: the step's batch, begun, or None for an empty step."""
        output = argument(args, kwargs, "scheduler_output")
        self._step.awaiting = self._step.encoding = self._step.running = ()
        self._step.batch = None
        self._learn(output)
        if kwargs.get("dummy_run") or not output.total_num_scheduled_tokens:
            return None
        if output.scheduled_encoder_inputs and is_first_worker(runner):
            self._step.encoding = output.scheduled_encoder_inputs
            self._step.awaiting = tuple(output.scheduled_encoder_inputs)
            if not any(hook.is_on for hook in self.encoders):
                self._begin_prefills(self._step.awaiting)
        self._step.running = tuple(output.num_scheduled_tokens)
        members = self._members(output)
        modality = modality_of(member[3] for member in members)
        self._step.batch = marks.batch(members, modality=modality, spans=False).begin()
        return self._step.batch

    def executed(self, _: Any, __: Any, ___: Any, batch: Any, ____: Any) -> None:
        if batch is not None:
            batch.end()
        self._begin_prefills(getattr(self._step, "awaiting", ()))  # whose encoder had it all in its cache
        self._step.encoding = ()
        self._step.batch = None

    def encoding(self, runner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`_execute_mm_encoder(scheduler_output)`: (the encoder's batch, whose it is), or None."""
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
        batch, rids = note
        batch.end()
        step = getattr(self._step, "batch", None)
        if step is not None:
            step.begin()
        self._begin_prefills(rids)

    def sampling(self, _: Any, __: Any, ___: Any) -> Any:
        if getattr(self._step, "batch", None) is not None:
            return marks.stage("sample", modality="text", request=_NO_REQUEST).begin()
        members = [(rid, "sample", 1) for rid in getattr(self._step, "running", ())]
        return marks.batch(members, modality="text", spans=False).begin()

    def sampled(self, _: Any, __: Any, ___: Any, scope: Any, ____: Any) -> None:
        if scope is not None:
            scope.end()

    def _members(self, output: Any) -> list[tuple[str, str, int, str]]:
        """(request, phase, tokens, modality) of each request in the step.

        A request that goes on decodes one token and its speculated ones; whatever has more, or is new, is a
        prefill.
        """
        new = {request.req_id for request in output.scheduled_new_reqs}
        speculated, inputs = output.scheduled_spec_decode_tokens, self._inputs
        members = []
        for rid, count in output.num_scheduled_tokens.items():
            is_decode = count <= 1 + len(speculated.get(rid, ())) and rid not in new
            modality = modality_of(inputs[rid]) if rid in inputs else "text"
            members.append((rid, "llm_decode" if is_decode else "llm_prefill", count, modality))
        return members

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
        members = []
        for rid, each in kinds.items():
            name, modality = encoder_of(each)
            members.append((rid, name, len(each), modality))
        step = getattr(self._step, "batch", None)
        if step is not None:
            step.end()  # it goes on when the encoder is done: what runs meanwhile is the encoder's
        modality = modality_of(kind for each in kinds.values() for kind in each)
        batch = marks.batch(members, modality=modality, spans=with_requests).begin()
        return batch, tuple(kinds) if with_requests else ()

    def _begin_prefills(self, rids: Sequence[str]) -> None:
        self._step.awaiting = tuple(rid for rid in getattr(self._step, "awaiting", ()) if rid not in rids)
        for rid in rids:
            modality = modality_of(self._inputs.get(rid, ()))
            marks.span_begin("llm_prefill", modality=modality, request=rid)


def encoder_of(kinds: Sequence[str]) -> tuple[str, str]:
    """(stage, modality) of a batch of encoder inputs: the stage of the most frequent one."""
    if not kinds:
        return "other", "unknown"
    most = max(kinds, key=kinds.count)
    return _ENCODERS.get(most, "other"), modality_of(kinds)


def is_first_worker(runner: Any) -> bool:
    """Whether this is the worker of rank 0; the only one if it cannot be told."""
    return bool(getattr(getattr(runner, "parallel_config", None), "rank", 0) == 0)
