# SPDX-License-Identifier: Apache-2.0
"""The only HTTP of this program: a GET with a bounded body and a bounded wait.

It follows no redirect, uses no proxy, asks for no compression, and never puts an address or a header of a
request into an error's text.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, LocationParseError, ReadTimeoutError

from hotstage_explorer.sources.base import AnswerError, UnreachableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_BODY_BYTES = 16 << 20

_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "hotstage-explorer",
}
_FAILURES = (
    "Connection refused",
    "Name or service not known",
    "Temporary failure in name resolution",
    "No route to host",
    "certificate verify failed",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """One connection at a time to one server; not thread-safe."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._pool = urllib3.PoolManager(maxsize=1, retries=False)
        self._pool.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def get(self, url: str, *, what: str, wait: float, headers: Mapping[str, str]) -> Reply:
        """`what` names the request in errors; `wait` is for the answer as a whole, however its bytes come.

        Raises UnreachableError before an answer begins, AnswerError for one that does not end well.
        """
        try:
            answer = self._pool.request(
                "GET",
                url,
                headers={**_HEADERS, **headers},
                timeout=wait,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except LocationParseError as error:
            raise UnreachableError("the address cannot be parsed") from error
        except HTTPError as error:
            raise UnreachableError(_plain(error, wait)) from error
        try:
            body = self._bounded(what, answer, self._monotonic() + wait)
            return Reply(answer.status, answer.headers, body)
        except ReadTimeoutError as error:
            raise AnswerError(_late(what)) from error
        except HTTPError as error:
            raise AnswerError(f"{what} broke off: {_plain(error, wait)}") from error
        finally:
            answer.close()  # keeps the connection when the body was read to its end

    def _bounded(self, what: str, answer: urllib3.BaseHTTPResponse, give_up: float) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := answer.read1(1 << 16):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise AnswerError(f"{what} sent more than {MAX_BODY_BYTES >> 20} MiB")
            if self._monotonic() > give_up:
                raise AnswerError(_late(what))
        return b"".join(chunks)


def _late(what: str) -> str:
    return f"{what} did not finish its answer in time"


class _Response(http.client.HTTPResponse):
    """Head and body share the time that the socket gives to one read."""

    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock))


class _Timed(io.RawIOBase):
    """What is read from `sock` through `raw`, until its timeout from now on is over."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self._until = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _plain(error: HTTPError, wait: float) -> str:
    """urllib3's wording, which names objects by address, → words for people."""
    said = str(error)
    if "timed out" in said.lower():
        return f"no answer within {wait:.1f} s"
    for words in _FAILURES:
        if words in said:
            return words[0].lower() + words[1:]
    return type(error).__name__.removesuffix("Error").removesuffix("Exception").lower() + " error"
