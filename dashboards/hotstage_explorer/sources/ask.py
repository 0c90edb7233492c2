# SPDX-License-Identifier: Apache-2.0
"""One question to one agent: a path → a JSON object, or the reason why there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hotstage_explorer import parse
from hotstage_explorer.sources.base import AnswerError
from hotstage_explorer.sources.wire import Wire

MAX_TAGS = 16


class Asker:
    """Asks over one connection, an unchanged body only once. Not thread-safe."""

    def __init__(self, address: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._wire = Wire(monotonic=monotonic)
        self._tags: dict[str, tuple[str, dict[str, Any]]] = {}

    def get(self, path: str, query: str, *, wait: float) -> dict[str, Any]:
        """The body of `path`. Raises UnreachableError and AnswerError, whose texts name the path."""
        known = self._tags.get(path + query)
        headers = {"If-None-Match": known[0]} if known else {}
        reply = self._wire.get(self._address + path + query, what=path, wait=wait, headers=headers)
        if reply.status == 304 and known:
            return known[1]
        if reply.status != 200:
            raise AnswerError(f"{path} answered HTTP {reply.status}{_said(reply.body)}")
        try:
            content = parse.body(reply.body)
        except parse.BodyError as error:
            raise AnswerError(f"{path} answered with {error}") from error
        tag = reply.headers.get("ETag")
        if tag and len(tag) < 200:
            if len(self._tags) >= MAX_TAGS and path + query not in self._tags:
                self._tags.clear()
            self._tags[path + query] = (tag, content)
        return content


def _said(raw: bytes) -> str:
    """The agent's own error sentence, if there is one."""
    try:
        error = parse.body(raw).get("error")
    except parse.BodyError:
        return ""
    message = parse.text(error.get("message")) if isinstance(error, dict) else ""
    return f": {message}" if message else ""
