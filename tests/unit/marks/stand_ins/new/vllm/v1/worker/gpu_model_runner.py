# SPDX-License-Identifier: Apache-2.0
"""A model runner with the names and signatures of vLLM 0.33.0."""

from __future__ import annotations

from types import SimpleNamespace


class GPUModelRunner:
    def __init__(self, rank: int = 0) -> None:
        self.parallel_config = SimpleNamespace(rank=rank)
        self.requests: dict[str, SimpleNamespace] = {}
        self.breaks = False

    def _execute_mm_encoder(self, scheduler_output: SimpleNamespace) -> list[object]:
        return [object() for _ in scheduler_output.scheduled_encoder_inputs]

    def execute_model(
        self, scheduler_output: SimpleNamespace, intermediate_tensors: object = None
    ) -> SimpleNamespace | None:
        for new in scheduler_output.scheduled_new_reqs:
            self.requests[new.req_id] = SimpleNamespace(mm_features=new.mm_features)
        self._execute_mm_encoder(scheduler_output)
        if self.breaks:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return None

    def sample_tokens(self, grammar_output: object | None) -> SimpleNamespace:
        return self._sample(None, None)

    def _sample(self, logits: object | None, spec_decode_metadata: object | None) -> SimpleNamespace:
        return SimpleNamespace(sampled=1)
