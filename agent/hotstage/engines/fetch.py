# SPDX-License-Identifier: Apache-2.0
"""One GET of one page: within a deadline, up to a size, following nothing. Knows no engine."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import zlib
from http.client import HTTPException

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as NoTimeError

from hotstage.engines.target import EngineTarget

_CHUNK_BYTES = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS
_ACCEPT = "text/plain;version=0.0.4"


class FetchError(Exception):
    """No page. `kind` is one of a few words, for counters; the message is for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Fetcher:
    """`fetch` from one thread; `cut_if_late` from another, since a socket's own timeout is per operation and
    an answer may come byte by byte.
    """

    def __init__(self, target: EngineTarget, timeout_seconds: float, max_bytes: int) -> None:
        self._target = target
        self._timeout = timeout_seconds
        self._max_bytes = max_bytes
        self._tls = ssl.create_default_context() if target.is_tls else None
        self._open: tuple[HTTPConnection, float] | None = None
        self._is_cut = False

    def fetch(self) -> bytes:
        """The page, unpacked. Raises FetchError."""
        headers = self._headers()
        connection = self._connection()
        self._is_cut = False
        self._open = (connection, time.monotonic() + self._timeout)
        try:
            connection.request("GET", self._target.path, headers=headers, preload_content=False)
            response = connection.getresponse()
            body = self._read(response)
        except (OSError, HTTPException, HTTPError, UnicodeError, zlib.error) as error:
            if self._is_cut or _is_timeout(error):
                raise self._late() from error
            raise FetchError("unreachable", _reason(error)) from error
        finally:
            self._open = None
            connection.close()
        if self._is_cut:
            # A page that stops halfway reads like a complete one.
            raise self._late()
        return body

    def cut_if_late(self) -> None:
        """End a fetch that is beyond its deadline; it then raises in its own thread."""
        opened = self._open
        if opened is None or time.monotonic() < opened[1]:
            return
        self._is_cut = True
        sock = getattr(opened[0], "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                # The base class's: SSLSocket's own takes the TLS object from the thread that is using it.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _late(self) -> FetchError:
        return FetchError("timeout", f"no whole answer within {self._timeout:g} s")

    def _connection(self) -> HTTPConnection:
        target = self._target
        if self._tls is None:
            return HTTPConnection(target.host, target.port, timeout=self._timeout)
        return HTTPSConnection(target.host, target.port, timeout=self._timeout, ssl_context=self._tls)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": _ACCEPT, "User-Agent": "hotstage", "Connection": "close"}
        # On one host packing costs the engine more than it saves.
        headers["Accept-Encoding"] = "identity" if self._target.is_loopback else "gzip"
        try:
            token = self._target.token()
        except (OSError, UnicodeError) as error:
            raise FetchError("token", f"{self._target.token_file}: {_reason(error)}") from error
        if token is not None and not (token.isprintable() and " " not in token and token):
            raise FetchError("token", f"{self._target.token_file} does not hold one word: the token")
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _read(self, response: urllib3.HTTPResponse) -> bytes:
        if response.status != 200:
            hint = ": redirects are not followed" if 300 <= response.status < 400 else ""
            raise FetchError("status", f"answers {response.status}{hint}")
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip"):
            raise FetchError("encoding", f"answers in {encoding[:32]!r}, which was not asked for")
        unpack = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        parts, size = [], 0
        # Not `stream`: that reads the line with a chunk's size whole, however long it is.
        while chunk := response.read1(_CHUNK_BYTES, decode_content=False):
            plain = chunk if unpack is None else unpack.decompress(chunk, self._max_bytes - size + 1)
            size += len(plain)
            if size > self._max_bytes:
                raise FetchError("size", f"the page is larger than {self._max_bytes} bytes")
            parts.append(plain)
        if unpack is not None and not unpack.eof:
            raise FetchError("encoding", "the packed page has no end")
        return b"".join(parts)


def _is_timeout(error: Exception) -> bool:
    """The client calls every failed connection a timeout; a refused one is none."""
    if isinstance(error, NewConnectionError):
        return False
    return isinstance(error, TimeoutError | NoTimeError)


def _reason(error: Exception) -> str:
    """A sentence without the client's objects in it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error).rpartition(": ")[2][:120] or type(error).__name__
