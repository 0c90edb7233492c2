# SPDX-License-Identifier: Apache-2.0
"""Finished requests of the stand-in agent: made from their number alone, so that each look tells the same."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

PER_SECOND = 12
KEPT = 2000
_PREPARE = (("gateway", 0.004), ("media_fetch", 0.021), ("media_decode", 0.012), ("preprocess", 0.014))
_LANGUAGE = (("llm_prefill", 0.085), ("llm_decode", 0.34), ("detokenize", 0.002))
# endpoint, modality, model, stages by their usual seconds
KINDS = (
    ("/v1/chat/completions", "text", "llm-8b", (("gateway", 0.003), ("tokenize", 0.002), *_LANGUAGE)),
    (
        "/v1/vision",
        "image",
        "vlm-7b",
        (*_PREPARE, ("tokenize", 0.002), ("vision_encode", 0.048), ("cross_modal_align", 0.007), *_LANGUAGE),
    ),
    ("/v1/audio/transcriptions", "audio", "asr-2b", (*_PREPARE[:3], ("audio_encode", 0.072), *_LANGUAGE[1:])),
    (
        "/v1/video/describe",
        "video",
        "vlm-7b",
        (*_PREPARE, ("video_encode", 0.16), ("lora_apply", 0.004), *_LANGUAGE),
    ),
)
_MEDIA_STAGES = ("media_fetch", "media_decode", "preprocess", "vision_encode", "audio_encode", "video_encode")
_SYNCHRONOUS = ("media_decode", "preprocess", "vision_encode", "audio_encode", "video_encode", "llm_prefill")


def stamp(ns: int) -> str:
    moment = datetime.fromtimestamp(ns / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def listing(began: float, now: float, after: int, limit: int, evil: str | None) -> dict[str, Any]:
    """`/v1/requests`: as many as have ended since `began`, and `KEPT` before it."""
    last = KEPT + int((now - began) * PER_SECOND)
    first = max(after, last - KEPT) + 1
    numbers = range(first, min(last, first + limit - 1) + 1)
    rows = [waterfall(number, began, evil)["request"] for number in numbers]
    totals = {"started": last + 14, "finished": last - 9, "open": 14, "refused": 9}
    return {"requests": rows, "next": numbers[-1] if numbers else max(after, last), "totals": totals}


def waterfall(number: int, began: float, evil: str | None = None) -> dict[str, Any]:
    """`/v1/requests/{number}`."""
    dice = random.Random(number)
    endpoint, modality, model, stages = KINDS[number % len(KINDS)]
    is_slow = number % 41 == 1
    segments: list[dict[str, Any]] = []
    at, before, ttft = 0.0, None, None
    for name, usual in stages:
        gap = dice.uniform(0.0003, 0.004) * (30 if is_slow and name == "vision_encode" else 1)
        segments.append(_gap(at, gap, before, name))
        at += gap
        seconds = usual * dice.uniform(0.7, 1.5) * (9.6 if is_slow and "encode" in name else 1.0)
        if name == "llm_decode":
            ttft = at
        segments.append(_stage(name, modality, at, seconds, dice))
        at, before = at + seconds, name
    at += 0.0008
    segments.append(_gap(at - 0.0008, 0.0008, before, None))
    for part in segments:
        begin = part["offset_seconds"]
        part["before_first_token_seconds"] = (
            None if ttft is None else max(0.0, min(part["critical_seconds"], ttft - begin))
        )
    segments[-1]["decides_end"] = True
    ended_ns = int((began + (number - KEPT) / PER_SECOND) * 1e9)
    outcome = "error" if number % 53 == 7 else "cancelled" if number % 97 == 11 else "ok"
    longest = max(segments, key=lambda part: part["critical_seconds"])
    tokens = dice.randrange(16, 300)
    request = {
        "seq": number,
        "id": f"{evil} {number}" if evil else f"req-{number:06d}",
        "endpoint": endpoint,
        "instance": f"i-{number // 4 % 2}",
        "model": model,
        "modality": modality,
        "pid": 4210 + number // 4 % 2,
        "traceparent": f"00-{number:032x}-{number:016x}-01" if number % 3 == 0 else None,
        "input_digest": f"{number * 2654435761 % 2**64:016x}" if modality == "image" else None,
        "outcome": outcome,
        "started_at": stamp(ended_ns - int(at * 1e9)),
        "started_at_ns": ended_ns - int(at * 1e9),
        "ended_at": stamp(ended_ns),
        "ended_at_ns": ended_ns,
        "duration_seconds": at,
        "ttft_seconds": ttft,
        "ttft_basis": None if ttft is None else "decode_begin",
        "itl_seconds": None if ttft is None else (at - ttft) / (tokens - 1),
        "output_tokens": tokens,
        "launches": 512.5 + number % 100,
        "errors": int(outcome == "error"),
        "lora_rank": 16 if modality == "video" else None,
        "lora_module": "qkv_proj" if modality == "video" else None,
        "slowest": {
            "name": longest["name"],
            "kind": longest["kind"],
            "seconds": longest["critical_seconds"],
            "share": longest["critical_seconds"] / at,
        },
        "stages": [
            {
                "stage": part["name"],
                "modality": part["modality"],
                "seconds": part["duration_seconds"],
                "count": part["runs"],
                "tokens": part["tokens"] or 0,
            }
            for part in segments
            if part["runs"] is not None
        ],
    }
    return {"request": request, "segments": segments}


def _stage(name: str, modality: str, at: float, seconds: float, dice: random.Random) -> dict[str, Any]:
    runs = 40 if name == "llm_decode" else 1
    parts = None
    if name in _SYNCHRONOUS:
        shares = [dice.uniform(0, 0.3) for _ in range(4)]
        parts = {
            f"{kind}_seconds": seconds * share
            for kind, share in zip(("run_queue", "sync", "copy", "alloc"), shares, strict=True)
        }
        parts["host_seconds"] = max(0.0, seconds * (1 - sum(shares)))
    return {
        "kind": "stage",
        "name": name,
        "modality": modality if name in _MEDIA_STAGES else "text",
        "offset_seconds": at,
        "duration_seconds": seconds,
        "until_seconds": at + seconds,
        "last_begin_seconds": at + seconds * 0.9 if runs > 1 else None,
        "placement": "first_begin" if runs > 1 else "exact",
        "critical_seconds": 0.0 if name == "tokenize" else seconds,
        "before_first_token_seconds": None,
        "decides_end": False,
        "runs": runs,
        "is_open": False,
        "tokens": 1024 if "encode" in name else None,
        "after": None,
        "before": None,
        "parts": parts,
        "contexts": [{"context": 0x5581_0000_1000, "ordinal": 0}] if parts else None,
    }


def _gap(at: float, seconds: float, after: str | None, before: str | None) -> dict[str, Any]:
    name = "queue" if before in ("vision_encode", "llm_prefill") else "delivery" if after else "unmarked"
    return {
        **_stage(name, "text", at, seconds, random.Random(0)),
        "kind": "wait",
        "modality": None,
        "placement": "gap",
        "last_begin_seconds": None,
        "critical_seconds": seconds,
        "runs": None,
        "tokens": None,
        "after": after,
        "before": before,
        "parts": None,
        "contexts": None,
    }
