# SPDX-License-Identifier: Apache-2.0
"""The newer runner's encoder, with the names and signatures of vLLM 0.33.0."""

from __future__ import annotations


class EncoderRunner:
    def execute_mm_encoder(self, mm_kwargs: list[tuple[str, object]]) -> list[object]:
        return [item for _, item in mm_kwargs]
