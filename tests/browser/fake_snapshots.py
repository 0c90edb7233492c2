# SPDX-License-Identifier: Apache-2.0
"""What the stand-in agent says of requests in flight: now, and in two stored snapshots of a hang."""

from __future__ import annotations

from typing import Any

from fake_requests import KINDS, stamp

STORED = (("s-0002", 40.0, "w-0004"), ("s-0001", 340.0, "w-0003"))
"""(id, seconds before the script began, its window), newest first."""

_PINNED = (
    *(
        "gateway",
        "media_fetch",
        "media_decode",
        "preprocess",
        "tokenize",
        "queue",
        "model_load",
        "lora_apply",
    ),
    *("vision_encode", "audio_encode", "video_encode", "cross_modal_align", "llm_prefill", "llm_decode"),
    *("kv_transfer", "sample", "detokenize", "other"),
)
_CALLS = {
    "vision_encode": "cuStreamSynchronize",
    "llm_decode": "cuEventSynchronize",
    "llm_prefill": "cuLaunchKernel",
}


def snapshot(at_ns: int, count: int, began: float, shift: int = 0) -> dict[str, Any]:
    """`count` requests, of which the first eight are the same in every snapshot; `shift` moves the others.

    The eight have hung since 412 s before `began`.
    """
    hung_ns = int((began - 412.0) * 1e9)
    requests = [_request(n if n < 8 else n + shift, at_ns, hung_ns if n < 8 else None) for n in range(count)]
    threads = [thread for request in requests[:40] for thread in request["threads"]]
    return {
        "taken_at": stamp(at_ns),
        "taken_at_ns": at_ns,
        "wall_offset_ns": 1_700_000_000_000_000_000,
        "requests": requests,
        "requests_total": len(requests),
        "threads": threads,
        "threads_total": len(threads),
        "unclean": 0,
        "losses": {},
    }


def stored_list(began: float) -> dict[str, Any]:
    rows = [
        {
            "id": name,
            **_taken(began, before),
            "requests": 24,
            "threads": 24,
            "unclean": 0,
            "bytes": 9211,
            "causes": _causes(window),
        }
        for name, before, window in STORED
    ]
    return {"snapshots": rows}


def stored(name: str, began: float) -> dict[str, Any] | None:
    """None for an id that is not kept."""
    for place, (known, before, window) in enumerate(STORED):
        if name in (known, window):
            taken = _taken(began, before)
            found = snapshot(taken["taken_at_ns"], 24, began, shift=10 * place)
            return {"id": known, "window_id": window, "causes": _causes(window), **taken, "snapshot": found}
    return None


def plan(found: dict[str, Any], name: str | None) -> dict[str, Any]:
    plans = [_plan(request) for request in found["requests"]]
    resumed = sum(each["decision"] == "resume" for each in plans)
    return {
        "snapshot_id": name,
        "taken_at": found["taken_at"],
        "taken_at_ns": found["taken_at_ns"],
        "policy": {"gateway": True, "media_fetch": True, "vision_encode": True, "llm_prefill": False},
        "resume": resumed,
        "redo": len(plans) - resumed,
        "requests": plans,
    }


def _taken(began: float, before: float) -> dict[str, Any]:
    at_ns = int((began - before) * 1e9)
    return {"taken_at": stamp(at_ns), "taken_at_ns": at_ns}


def _causes(window: str) -> list[dict[str, Any]]:
    return [
        {"kind": "window", "name": window, "window_id": window},
        {"kind": "breaker", "name": "stage:vision_encode:image", "window_id": window},
    ]


def _request(n: int, at_ns: int, hung_ns: int | None) -> dict[str, Any]:
    is_stuck = hung_ns is not None
    endpoint, modality, model, stages = KINDS[1] if is_stuck else KINDS[n % len(KINDS)]
    names = [name for name, _ in stages]
    reached = names.index("vision_encode") if is_stuck else n % len(names)
    begun_ns = at_ns - int((0.05 + n % 40 * 0.03) * 1e9) if hung_ns is None else hung_ns + n * 1_000_000
    age = max(0.0, (at_ns - begun_ns) / 1e9)
    stage, pid = names[reached], 4210 + n % 2
    open_ns = begun_ns + 20_000_000 if is_stuck else at_ns - int(age * 0.3e9)
    open_age = max(0.0, (at_ns - open_ns) / 1e9)
    own = "text" if stage.startswith(("llm", "token", "detoken", "gateway")) else modality
    thread = {
        "pid": pid,
        "tid": 5000 + n,
        "stage": stage,
        "modality": own,
        "call": _CALLS.get(stage),
        "since": stamp(open_ns),
        "since_ns": open_ns,
        "age_seconds": open_age,
        "cuda_stream": 0x7F00_0000_1000 + 0x100 * (n % 4),
        "device_ordinal": n % 2,
        "request_key": f"1-{n:x}",
    }
    return {
        "key": f"1-{n:x}",
        "id": f"req-{n:06d}",
        "endpoint": endpoint,
        "instance": f"i-{n % 2}",
        "model": model,
        "model_id": 1,
        "pid": pid,
        "cgroup_id": 1,
        "started_at": stamp(begun_ns),
        "started_at_ns": begun_ns,
        "updated_at": stamp(open_ns),
        "updated_at_ns": open_ns,
        "age_seconds": age,
        "stage_mask": sum(1 << _PINNED.index(name) for name in names[:reached]),
        "stages_done": names[:reached],
        "stages": [
            {"stage": name, "modality": modality, "seconds": 0.01, "count": 1, "tokens": None}
            for name in names[:reached]
        ],
        "open": [
            {
                "stage": stage,
                "modality": own,
                "since": stamp(open_ns),
                "since_ns": open_ns,
                "age_seconds": open_age,
                "tokens": None,
            }
        ],
        "modalities": [
            {
                "modality": modality,
                "first_at": stamp(begun_ns),
                "first_at_ns": begun_ns,
                "last_at": stamp(open_ns),
                "last_at_ns": open_ns,
                "last_stage": stage,
                "tokens": None,
            }
        ],
        "cuda_stream": thread["cuda_stream"],
        "devices": [
            {
                "ordinal": n % 2,
                "uuid": f"GPU-{n % 2}f1c2d3e",
                "source": "thread",
                "stages": [stage],
                "index": n % 2,
            }
        ],
        "contexts": [{"context": 0x5581_0000_1000, "ordinal": n % 2, "stages": [stage]}],
        "threads": [thread],
        "stage_threads": [],
        "tokens": {},
        "output_tokens": 12 if "llm_decode" in names[:reached] else 0,
        "launches": 100.5,
        "bytes": None,
        "errors": 0,
        "input_digest": f"{n:016x}" if modality == "image" else None,
        "traceparent": None,
        "lora": None,
        "embedding": None,
    }


def _plan(request: dict[str, Any]) -> dict[str, Any]:
    done = request["stages_done"]
    is_resumed = "media_decode" in done
    return {
        **{
            name: request[name]
            for name in ("key", "id", "endpoint", "instance", "pid", "output_tokens", "traceparent")
        },
        "last_finished_stage": done[-1] if done else None,
        "open_stages": [part["stage"] for part in request["open"]],
        "decision": "resume" if is_resumed else "redo",
        "resume_at": request["open"][0]["stage"],
        "reuse": done[-1:] if is_resumed else [],
        "redo": [request["open"][0]["stage"]],
        "image": {
            "resampling": "never",
            "input_digest": request["input_digest"],
            "is_provable": request["input_digest"] is not None,
            "redone_from_the_same_input": [],
        }
        if request["endpoint"] == "/v1/vision"
        else None,
    }
