# SPDX-License-Identifier: Apache-2.0
"""A scheduler with the names and signatures of vLLM 0.33.0, and the least that they need to do."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any


class RequestStatus(enum.IntEnum):
    WAITING = 1
    RUNNING = 2
    PREEMPTED = 3
    FINISHED_STOPPED = 4
    FINISHED_LENGTH_CAPPED = 5
    FINISHED_ABORTED = 6
    FINISHED_IGNORED = 7
    FINISHED_ERROR = 8
    FINISHED_REPETITION = 9


class Request:
    def __init__(
        self,
        request_id: str,
        prompt: int,
        max_tokens: int,
        mm_features: list | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> None:
        self.request_id, self.num_prompt_tokens, self.max_tokens = request_id, prompt, max_tokens
        self.status = RequestStatus.WAITING
        self.mm_features = mm_features or []
        self.trace_headers = trace_headers
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
        if request.request_id not in self.requests:
            self.requests[request.request_id] = request

    def schedule(self, throttle_prefills: bool = False) -> SimpleNamespace:
        new, scheduled, encoding = [], {}, {}
        for rid, request in self.requests.items():
            left = request.num_prompt_tokens + request.num_output_tokens - request.num_computed_tokens
            scheduled[rid] = min(left, self.budget)
            if request.status is RequestStatus.WAITING:
                new.append(SimpleNamespace(req_id=rid, mm_features=request.mm_features))
            if request.mm_features and not request.num_computed_tokens:
                encoding[rid] = list(range(len(request.mm_features)))
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
    ) -> dict[int, list[str]]:
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
        return {0: done}

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus
    ) -> list[Request]:
        wanted = (request_ids,) if isinstance(request_ids, str) else request_ids or list(self.requests)
        ended = [self.requests[rid] for rid in wanted]
        for request in ended:
            request.status = finished_status
            self._free_request(request)
        return ended

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0

    def _free_request(
        self, request: Request, delay_free_blocks: bool = False
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        self.finished_req_ids.add(request.request_id)
        del self.requests[request.request_id]
        return None, None
