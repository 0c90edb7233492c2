# SPDX-License-Identifier: Apache-2.0
"""A scheduler with the names and signatures of vLLM 0.8.5, and the least that they need to do."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from types import SimpleNamespace


class RequestStatus(enum.IntEnum):
    WAITING = 1
    RUNNING = 2
    PREEMPTED = 3
    FINISHED_STOPPED = 4
    FINISHED_LENGTH_CAPPED = 5
    FINISHED_ABORTED = 6
    FINISHED_IGNORED = 7


class Request:
    def __init__(self, request_id: str, prompt: int, max_tokens: int, mm_inputs: list | None = None) -> None:
        self.request_id, self.num_prompt_tokens, self.max_tokens = request_id, prompt, max_tokens
        self.status = RequestStatus.WAITING
        self.mm_inputs = mm_inputs or []
        self.num_computed_tokens = 0
        self._output_token_ids: list[int] = []

    @property
    def num_output_tokens(self) -> int:
        return len(self._output_token_ids)


class Scheduler:
    def __init__(self, vllm_config: SimpleNamespace, budget: int = 100) -> None:
        self.vllm_config, self.budget = vllm_config, budget
        self.requests: dict[str, Request] = {}
        self.finished_req_ids: set[str] = set()

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request

    def schedule(self) -> SimpleNamespace:
        new, scheduled, encoding = [], {}, {}
        for rid, request in self.requests.items():
            left = request.num_prompt_tokens + request.num_output_tokens - request.num_computed_tokens
            scheduled[rid] = min(left, self.budget)
            if request.status is RequestStatus.WAITING:
                new.append(SimpleNamespace(req_id=rid, mm_inputs=request.mm_inputs))
            if request.mm_inputs and not request.num_computed_tokens:
                encoding[rid] = list(range(len(request.mm_inputs)))
            request.status = RequestStatus.RUNNING
        finished, self.finished_req_ids = self.finished_req_ids, set()
        return SimpleNamespace(
            scheduled_new_reqs=new,
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            scheduled_spec_decode_tokens={},
            scheduled_encoder_inputs=encoding,
            finished_req_ids=finished,
        )

    def update_from_output(
        self, scheduler_output: SimpleNamespace, model_runner_output: SimpleNamespace
    ) -> list[str]:
        done = []
        for rid, count in scheduler_output.num_scheduled_tokens.items():
            request = self.requests.get(rid)
            if request is None:
                continue
            request.num_computed_tokens += count
            if request.num_computed_tokens >= request.num_prompt_tokens:
                request._output_token_ids.append(7)
            if request.num_output_tokens >= request.max_tokens:
                request.status = RequestStatus.FINISHED_LENGTH_CAPPED
                self._free_request(request)
                done.append(rid)
        return done

    def finish_requests(
        self,
        request_ids: str | Iterable[str],
        finished_status: RequestStatus,
    ) -> None:
        for rid in (request_ids,) if isinstance(request_ids, str) else request_ids:
            request = self.requests[rid]
            request.status = finished_status
            self._free_request(request)

    def _free_request(self, request: Request) -> None:
        self.finished_req_ids.add(request.request_id)
        del self.requests[request.request_id]
