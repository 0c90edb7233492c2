# SPDX-License-Identifier: Apache-2.0
"""The marks where the extension is missing: the same names, and nothing happens.

Never raises either; the current request is kept, so that a server sees the same `current_request()`.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

_current: ContextVar[Request | None] = ContextVar("hotstage_marks.current_request", default=None)


class Scope:
    """One stage or span; holds the token count and nothing else."""

    __slots__ = ("tokens",)

    def __init__(self, tokens: Any = 0) -> None:
        self.tokens = tokens

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begin(self) -> Scope:
        return self

    def end(self, tokens: Any = None) -> None:
        if tokens is not None:
            self.tokens = tokens


class Request:
    """One request; knows its id and hash."""

    __slots__ = ("_token", "digest", "id")

    def __init__(self, rid: Any) -> None:
        self.id = rid
        self.digest = ""
        self._token: Token[Request | None] | None = None

    @property
    def hash(self) -> int:
        return request_hash(self.id)

    def __enter__(self) -> Request:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        try:
            if token is not None:
                _current.reset(token)
        except ValueError:  # left in another context than it was entered in: nothing to restore there
            return

    def begin(self) -> Request:
        return self

    def end(self, outcome: Any = "ok", output_tokens: Any = None) -> None:
        return None

    def tokens(self, count: Any) -> None:
        return None


class Batch:
    """One batch; the members are never looked at."""

    __slots__ = ()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begin(self) -> Batch:
        return self

    def end(self) -> None:
        return None


def batch(members: Any = (), *_: Any, **__: Any) -> Batch:
    return Batch()


def embedding(vector: Any = None, *_: Any, **__: Any) -> bool:
    return False


def define_stage(name: Any) -> int:
    return 17  # `other`: there is no table to put it into


def statistics() -> dict[str, Any]:
    return {
        "stages": {},
        "stages_refused": 0,
        "batches_nested": 0,
        "batches_broken": 0,
        "members_cut": 0,
        "members_malformed": 0,
        "embeddings_refused": 0,
    }


def stage(name: Any = None, *_: Any, tokens: Any = 0, **__: Any) -> Scope:
    return Scope(tokens)


def span(name: Any = None, *_: Any, tokens: Any = 0, **__: Any) -> Scope:
    return Scope(tokens)


def span_begin(name: Any = None, *_: Any, **__: Any) -> None:
    return None


def span_end(name: Any = None, *_: Any, **__: Any) -> None:
    return None


def request(rid: Any = None, *_: Any, **__: Any) -> Request:
    return Request(rid)


def request_begin(rid: Any = None, *_: Any, **__: Any) -> Request:
    return Request(rid)


def request_end(rid: Any = None, *_: Any, **__: Any) -> None:
    return None


def tokens(count: Any = None, *_: Any, **__: Any) -> None:
    return None


def digest(*_: Any) -> str:
    return ""


def is_watched() -> bool:
    return False


def current_request() -> Request | None:
    return _current.get()


def request_hash(rid: Any) -> int:
    """FNV-1a 64 of the id's UTF-8 bytes, 0 mapped to 1; an empty or unreadable id is 0."""
    if isinstance(rid, Request):
        return rid.hash
    try:
        data = str(rid).encode() if rid is not None else b""
    except Exception:  # an id whose __str__ raises, or a lone surrogate
        return 0
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return (value or 1) if data else 0
