# SPDX-License-Identifier: Apache-2.0
"""The marks through the library for C, where the extension cannot be compiled. One thread only.

`HOTSTAGE_MARKS_LIBRARY` names the library; without it every mark does nothing and `is_native` is False.
"""

from __future__ import annotations

import ctypes
import os
from types import TracebackType

STAGES = [
    "gateway",
    "media_fetch",
    "media_decode",
    "preprocess",
    "tokenize",
    "queue",
    "model_load",
    "lora_apply",
    "vision_encode",
    "audio_encode",
    "video_encode",
    "cross_modal_align",
    "llm_prefill",
    "llm_decode",
    "kv_transfer",
    "sample",
    "detokenize",
    "other",
]
MODALITIES = ["text", "image", "audio", "video", "mixed", "unknown"]
OUTCOMES = ["ok", "error", "cancelled", "refused"]

_path = os.environ.get("HOTSTAGE_MARKS_LIBRARY")
_library = ctypes.CDLL(_path) if _path else None
is_native = _library is not None
_current: list[Request] = []

if _library is not None:
    _library.hotstage_request_begin.restype = ctypes.c_uint64
    _library.hotstage_request_begin.argtypes = [ctypes.c_char_p] * 5


class _Scope(ctypes.Structure):
    """struct hotstage_scope of hotstage_marks.h."""

    _fields_ = (
        ("word", ctypes.c_uint64),
        ("request_hash", ctypes.c_uint64),
        ("tokens", ctypes.c_uint64),
        ("sequence", ctypes.c_uint64),
        ("owner", ctypes.c_void_p),
        ("depth", ctypes.c_uint32),
        ("is_open", ctypes.c_uint32),
    )


class Stage:
    """One stage, from begin to end."""

    def __init__(self, name: str, modality: str, tokens: int, request: Request | str | None) -> None:
        owner = request if isinstance(request, Request) else _current[-1] if _current else None
        self._words = (STAGES.index(name), MODALITIES.index(modality), owner.hash if owner else 0, tokens)
        self._scope = _Scope()

    def begin(self) -> Stage:
        if _library is not None:
            words = (ctypes.c_uint64(word) for word in self._words)
            _library.hotstage_stage_begin(ctypes.byref(self._scope), *words)
        return self

    def end(self) -> None:
        if _library is not None:
            _library.hotstage_stage_end(ctypes.byref(self._scope))

    def __enter__(self) -> Stage:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Request:
    """One request, the current one while its block is open."""

    def __init__(self, rid: str, endpoint: str, instance: str, model: str) -> None:
        self.id = rid
        self.hash = 0
        self._strings = [text.encode() for text in (rid, endpoint, instance, model)]
        self._tokens = 0

    def begin(self) -> Request:
        if _library is not None:
            self.hash = _library.hotstage_request_begin(*self._strings, None)
        return self

    def tokens(self, count: int) -> None:
        self._tokens = count
        if _library is not None:
            _library.hotstage_tokens(ctypes.c_uint64(self.hash), ctypes.c_uint64(count))

    def end(self, outcome: str = "ok", output_tokens: int | None = None) -> None:
        if _library is not None:
            count = self._tokens if output_tokens is None else output_tokens
            words = (self.hash, OUTCOMES.index(outcome), count)
            _library.hotstage_request_end(*(ctypes.c_uint64(word) for word in words))

    def __enter__(self) -> Request:
        _current.append(self.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.pop()
        self.end("ok" if kind is None else "error")


def stage(
    name: str, *, modality: str = "unknown", tokens: int = 0, request: Request | str | None = None
) -> Stage:
    return Stage(name, modality, tokens, request)


def request(rid: str, *, endpoint: str = "", instance: str = "", model: str = "") -> Request:
    return Request(rid, endpoint, instance, model)


def request_begin(rid: str, *, endpoint: str = "", instance: str = "", model: str = "") -> Request:
    return request(rid, endpoint=endpoint, instance=instance, model=model).begin()


def tokens(count: int, *, request: Request | None = None) -> None:
    found = request or (_current[-1] if _current else None)
    if found is not None:
        found.tokens(count)
