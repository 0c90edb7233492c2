# SPDX-License-Identifier: Apache-2.0
"""A model runner with the names and signatures of vLLM 0.8.5: it samples inside execute_model."""

from __future__ import annotations

from types import SimpleNamespace


class GPUModelRunner:
    def __init__(self, rank: int = 0) -> None:
        self.parallel_config = SimpleNamespace(rank=rank)
        self.requests: dict[str, SimpleNamespace] = {}

    def _execute_mm_encoder(self, scheduler_output: SimpleNamespace) -> None:
        if not scheduler_output.scheduled_encoder_inputs:
            return

    def execute_model(
        self, scheduler_output: SimpleNamespace, intermediate_tensors: object = None
    ) -> SimpleNamespace:
        for new in scheduler_output.scheduled_new_reqs:
            self.requests[new.req_id] = SimpleNamespace(mm_inputs=new.mm_inputs)
        self._execute_mm_encoder(scheduler_output)
        return SimpleNamespace(req_ids=list(scheduler_output.num_scheduled_tokens))
