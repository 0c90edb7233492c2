# SPDX-License-Identifier: Apache-2.0
"""Requests, responses and errors of the API as values. It reads no socket."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BufferedIOBase
from typing import TypeVar

import msgspec

JSON = "application/json"
GZIP_FROM_BYTES = 4096

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks: the credentials of a Unix socket's other end, or a TCP address."""

    address: str
    uid: int | None = None
    gid: int | None = None
    pid: int | None = None

    @property
    def is_local_socket(self) -> bool:
        return self.uid is not None


class ApiError(Exception):
    """Ends a request: status, a code for programs, a message and a remedy for people."""

    def __init__(
        self, status: int, code: str, message: str, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.remedy = remedy
        self.headers = headers or {}

    def response(self) -> Response:
        error = {"code": self.code, "message": self.message, "remedy": self.remedy}
        return Response(self.status, msgspec.json.encode({"error": error}), headers=self.headers)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are lower case, path segments and query values decoded."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: Peer
    is_authorised: bool = False
    """It carried the token."""

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        return int(self.number(name, default, low, high, int))

    def number(
        self, name: str, default: float, low: float, high: float, kind: Callable[[str], float] = float
    ) -> float:
        """A query parameter within bounds. Raises ApiError 400."""
        text = self.query.get(name)
        if text is None:
            return default
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise ApiError(400, "bad_parameter", f"{name}={text[:64]}", f"give a number from {low} to {high}")
        return value

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        """A query parameter out of a list. Raises ApiError 400."""
        value = self.query.get(name, default)
        if value not in allowed:
            raise ApiError(400, "bad_parameter", f"{name}={value[:64]}", f"use one of {', '.join(allowed)}")
        return value

    def decode(self, kind: type[T]) -> T:
        """The JSON body as `kind`. Raises ApiError 400 that names the field."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(
                400, "bad_body", str(error), "see /v1/openapi.json for this request's body"
            ) from None


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body and its type; `etag` lets a client ask again without paying for the body."""

    status: int
    body: bytes
    content_type: str = JSON
    etag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def for_request(self, request: Request) -> Response:
        """304 if the client has it, compressed if it is long and the client can, headers complete."""
        headers = {"Content-Type": self.content_type, "X-Content-Type-Options": "nosniff", **self.headers}
        if self.etag is None:
            headers["Cache-Control"] = "no-store"
        else:
            headers |= {"Cache-Control": "no-cache", "ETag": self.etag}
            if self.status == 200 and _knows(request.headers.get("if-none-match", ""), self.etag):
                del headers["Content-Type"]
                return Response(304, b"", self.content_type, self.etag, headers)
        body = self.body
        if len(body) >= GZIP_FROM_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
            # Level 1: the bytes are few and the agent's CPU is what is scarce.
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(self.status, body, self.content_type, self.etag, headers)


@dataclass(frozen=True, slots=True)
class Stream:
    """A response without an end: `write` is called with the connection and returns when it is over. `end` is
    called once whatever becomes of it, though nothing was written.
    """

    write: Callable[[BufferedIOBase], None]
    end: Callable[[], None] = lambda: None
    content_type: str = "text/event-stream"


def _knows(if_none_match: str, etag: str) -> bool:
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in known or etag.removeprefix("W/") in known
