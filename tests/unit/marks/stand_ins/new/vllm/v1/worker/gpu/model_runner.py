# SPDX-License-Identifier: Apache-2.0
"""The newer model runner, with the names and signatures of vLLM 0.33.0; its encoder is in another module."""

from __future__ import annotations

from types import SimpleNamespace

from vllm.v1.worker.gpu.mm.encoder_runner import EncoderRunner


class GPUModelRunner:
    def __init__(self, rank: int = 0) -> None:
        self.parallel_config = SimpleNamespace(rank=rank)
        self.encoder_runner = EncoderRunner()
        self.features: dict[str, list[SimpleNamespace]] = {}
        self.is_encoder_cached = False

    def execute_model(
        self,
        scheduler_output: SimpleNamespace,
        intermediate_tensors: object | None = None,
        dummy_run: bool = False,
        skip_attn_for_dummy_run: bool = False,
        is_profile: bool = False,
        context_len: int = 0,
        valid_dummy_state_slots: bool = False,
        randomize_inputs: bool = False,
    ) -> SimpleNamespace | None:
        self.features.update((new.req_id, new.mm_features) for new in scheduler_output.scheduled_new_reqs)
        items = [
            (self.features[rid][index].modality, object())
            for rid, indices in scheduler_output.scheduled_encoder_inputs.items()
            for index in indices
        ]
        if items and not self.is_encoder_cached:
            self.encoder_runner.execute_mm_encoder(items)
        return None

    def sample_tokens(self, grammar_output: object | None) -> SimpleNamespace | None:
        return SimpleNamespace(sampled=1)
