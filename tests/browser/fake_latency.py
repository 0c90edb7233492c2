# SPDX-License-Identifier: Apache-2.0
"""What the stand-in agent says of first tokens, components and classes."""

from __future__ import annotations

from typing import Any

_PARTS: dict[str, tuple[tuple[str, str, float], ...]] = {
    "text": (
        ("llm_prefill", "stage", 0.62),
        ("queue", "wait", 0.21),
        ("gateway", "stage", 0.1),
        ("tokenize", "stage", 0.07),
    ),
    "image": (
        *(("vision_encode", "stage", 0.46), ("queue", "wait", 0.19), ("llm_prefill", "stage", 0.17)),
        *(("media_fetch", "stage", 0.08), ("preprocess", "stage", 0.05), ("media_decode", "stage", 0.03)),
        *(("delivery", "wait", 0.012), ("cross_modal_align", "stage", 0.006), ("unmarked", "wait", 0.002)),
    ),
    "audio": (("audio_encode", "stage", 0.51), ("media_decode", "stage", 0.33), ("delivery", "wait", 0.16)),
    "video": (("video_encode", "stage", 0.58), ("llm_prefill", "stage", 0.3), ("lora_apply", "stage", 0.12)),
}
_MEANS = {"text": 0.098, "image": 0.31, "audio": 0.14, "video": 0.42}
_COMPONENTS = (
    ("gateway", "stage", "mark", 700, 0.004),
    ("media_fetch", "stage", "mark", 520, 0.021),
    ("media_decode", "stage", "mark", 520, 0.012),
    ("preprocess", "stage", "mark", 350, 0.014),
    ("tokenize", "stage", "mark", 350, 0.002),
    ("model_load", "stage", "mark", 0, 0.0),
    ("lora_apply", "stage", "mark", 175, 0.004),
    ("vision_encode", "stage", "mark", 175, 0.14),
    ("audio_encode", "stage", "mark", 175, 0.072),
    ("video_encode", "stage", "mark", 175, 0.16),
    ("cross_modal_align", "stage", "mark", 175, 0.007),
    ("llm_prefill", "stage", "mark", 525, 0.085),
    ("llm_decode", "stage", "mark", 700, 0.34),
    ("detokenize", "stage", "mark", 700, 0.002),
    ("queue", "wait", "gap", 520, 0.022),
    ("delivery", "wait", "gap", 700, 0.003),
    ("unmarked", "wait", "gap", 700, 0.002),
    ("run_queue", "wait", "kernel", 500, 0.0021),
    ("sync", "wait", "kernel", 520, 0.031),
    ("copy", "wait", "kernel", 300, 0.0042),
    ("alloc", "wait", "kernel", 60, 0.0006),
)
_CLASSES = (
    # fingerprint, size, endpoint, requests, P95 in s, target in s
    ("llm", "up_to_1K", "/v1/chat/completions", 380, 0.42, 2.0),
    ("llm", "over_128K", "/v1/chat/completions", 12, None, 2.0),
    ("vlm", "up_to_8K", "/v1/vision", 260, 1.31, 0.8),
    ("audio", "up_to_1K", "/v1/audio/transcriptions", 130, 0.28, 0.3),
    ("vlm+video", "up_to_32K", "/v1/video/describe", 90, 0.93, 5.0),
)


def latency(is_empty: bool) -> dict[str, Any]:
    rows = [] if is_empty else [_tokens(name, _MEANS[name], parts) for name, parts in _PARTS.items()]
    whole = _tokens("all", 0.21, () if is_empty else _PARTS["image"][:6])
    if is_empty:
        whole = {
            name: None if name.endswith("seconds") or name == "slowest" else value
            for name, value in whole.items()
        }
        whole |= {"requests": 0, "ttft_samples": 0, "itl_samples": 0, "ttft_bases": {}}
    return {"window_seconds": 60.0, "total": whole, "modalities": rows}


def _tokens(modality: str, mean: float, parts: tuple[tuple[str, str, float], ...]) -> dict[str, Any]:
    few = modality == "video"
    return {
        "modality": modality,
        "requests": 18 if few else 175,
        "ttft_samples": 18 if few else 170,
        "ttft_bases": {"decode_begin": 18 if few else 170},
        "ttft_mean_seconds": mean,
        "ttft_p50_seconds": None if few else mean * 0.9,
        "ttft_p95_seconds": None if few else mean * 2.2,
        "itl_samples": 170,
        "itl_mean_seconds": 0.0019,
        "itl_p50_seconds": 0.0018,
        "itl_p95_seconds": 0.0031,
        "slowest": parts[0][0] if parts else None,
        "parts": [
            {
                "name": name,
                "kind": kind,
                "source": "mark" if kind == "stage" else "gap",
                "count": 18 if few else 160,
                "mean_seconds": mean * share,
                "p95_seconds": None if few else mean * share * 1.9,
                "share": share,
            }
            for name, kind, share in parts
        ],
    }


def components(is_empty: bool) -> dict[str, Any]:
    whole = _component("request", "request", "mark", 0 if is_empty else 700, 0.58)
    rows = [] if is_empty else [_component(*row) for row in _COMPONENTS]
    if rows:
        place = next(n for n, row in enumerate(rows) if row["stage"] == "lora_apply")
        rows.insert(place + 1, {**rows[place], "lora_rank": 16, "lora_module": "qkv_proj"})
    return {"window_seconds": 0.0 if is_empty else 60.0, "request": whole, "components": rows}


def _component(stage: str, kind: str, source: str, count: int, mean: float) -> dict[str, Any]:
    return {
        "stage": stage,
        "kind": kind,
        "source": source,
        "lora_rank": None,
        "lora_module": None,
        "count": count,
        "mean_seconds": mean if count else None,
        "p95_seconds": mean * 1.9 if count >= 20 else None,
        "variance": (mean * 0.5) ** 2 if count > 1 else None,
        "share": mean * count / (0.58 * 700) if count else None,
    }


def classes(is_empty: bool) -> dict[str, Any]:
    rows = [] if is_empty else [_class(*row) for row in _CLASSES]
    merged = {row["fingerprint"]: {**row, "size": None, "endpoint": None} for row in reversed(rows)}
    basis = {
        "size": "input tokens, text and media, up to and including the edge; K = 1,024",
        "token_equivalent_ms": "sum of latency ÷ sum of weight × tokens, output included",
        "slo_penalty_ms": "weight × max(0, p99 − baseline) of the class's modality, the heaviest of several",
    }
    return {
        "basis": basis,
        "window_seconds": 60.0,
        "fingerprints": list(reversed(merged.values())),
        "classes": [{**row, "endpoint": None} for row in rows],
        "endpoints": [{**row, "size": None} for row in rows if row["size"] != "over_128K"],
    }


def _class(
    fingerprint: str, size: str, endpoint: str, requests: int, p95: float | None, target: float
) -> dict[str, Any]:
    p99 = None if p95 is None else p95 * 1.3
    return {
        "endpoint": endpoint,
        "fingerprint": fingerprint,
        "size": size,
        "requests": requests,
        "samples": min(requests, 200),
        "rate": requests / 60,
        "mean_seconds": 0.7 if p95 is None else p95 * 0.55,
        "p50_seconds": None if p95 is None else p95 * 0.5,
        "p95_seconds": p95,
        "p99_seconds": p99,
        "p99_target_seconds": target,
        "within_target_ratio": None if p99 is None else (0.914 if p99 > target else 1.0),
        "token_equivalent_ms": 0.61 if fingerprint == "llm" else 0.43,
        "slo_baseline_seconds": target,
        "slo_penalty_ms": None if p99 is None else max(0.0, p99 - target) * 300,
    }
