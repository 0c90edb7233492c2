# SPDX-License-Identifier: Apache-2.0
"""The LoRA adapter that a request was served with, as `lora_apply` was opened. Pure."""

from __future__ import annotations

from typing import Any

MODULES = (
    None,
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "qkv_proj",
    "gate_up_proj",
    "embed_tokens",
    "lm_head",
    "vision",
    "projector",
    "all",
    "other",
)
"""By the number in a mark's word; 0 is unknown. Pinned: it is stored in maps and records."""


def lora_rank_of(row: Any) -> int | None:
    """Of a kernel row of a request; None: no adapter, or nobody said."""
    return int(row["lora_rank"]) or None


def lora_module_of(row: Any) -> str | None:
    """Of a kernel row of a request: what the adapter changes."""
    return lora_module_name(int(row["lora_module"]))


def lora_module_name(number: int) -> str | None:
    """A number that no table knows is `other`."""
    return MODULES[number] if number < len(MODULES) else "other"
