# SPDX-License-Identifier: Apache-2.0
"""Colours of drawings, which cannot read the stylesheet: the same values as in assets/explorer.css."""

from __future__ import annotations

INK = "#e8edf4"
INK_SOFT = "#a9b4c2"
PANEL = "#141a22"
FLOOR = "#19212b"
GRID = "#33404f"
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif'

# Viridis without its darkest eighth, which a dark ground would swallow.
LOAD_SCALE = [
    [0.0, "#472d7b"],
    [0.14, "#3f4788"],
    [0.29, "#31688e"],
    [0.43, "#25848e"],
    [0.57, "#1fa187"],
    [0.71, "#4ac16d"],
    [0.86, "#a0da39"],
    [1.0, "#fde725"],
]

# Families of stages: nine hues of one lightness that the common forms of colour blindness keep apart on this
# ground (Okabe and Ito's, lightened); every bar is named beside it as well.
FAMILIES = {
    "ingress": "#8fb8de",
    "prepare": "#56b4e9",
    "wait": "#8a94a3",
    "load": "#cc79a7",
    "encode": "#e69f00",
    "align": "#f0e442",
    "prefill": "#00b894",
    "decode": "#4f8ef7",
    "output": "#c3a6ff",
    "other": "#b8c0cc",
}
_FAMILY_OF = {
    "gateway": "ingress",
    "media_fetch": "ingress",
    "media_decode": "prepare",
    "preprocess": "prepare",
    "tokenize": "prepare",
    "queue": "wait",
    "model_load": "load",
    "lora_apply": "load",
    "vision_encode": "encode",
    "audio_encode": "encode",
    "video_encode": "encode",
    "cross_modal_align": "align",
    "llm_prefill": "prefill",
    "llm_decode": "decode",
    "kv_transfer": "decode",
    "sample": "output",
    "detokenize": "output",
}
ON_BARS = "#0d1218"
# What a stage's threads waited for, from the most to the least avoidable.
WAITS = {"run_queue": "#ff8f87", "sync": "#f0c14b", "copy": "#7cd6c9", "alloc": "#d7a3ff", "host": "#6b7684"}
OUTCOMES = {"ok": "#4ac16d", "error": "#ff8f87", "cancelled": "#a9b4c2", "refused": "#f0c14b"}
OUTCOME_SYMBOLS = {"ok": "circle", "error": "x", "cancelled": "triangle-up", "refused": "square"}


def family(stage: str) -> str:
    """Which of `FAMILIES` a stage belongs to; `other` for those that a server made up."""
    return _FAMILY_OF.get(stage, "other")
