# SPDX-License-Identifier: Apache-2.0
"""One connection: bytes → `Request` → answer → bytes, within limits of size and time. It knows no route.

All reads of one request share one deadline, so that sending a byte now and then buys a slow peer no time.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import struct
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from hotstage.api.access import Access
from hotstage.api.message import ApiError, Peer, Request, Response, Stream

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 10
MAX_LINE_BYTES = 8 << 10
MAX_QUERY_FIELDS = 32
_MAX_DIGITS = 18
_CREDENTIALS = struct.Struct("3i")

Answer = Callable[[Request], Response | Stream]


class DeadlineReader(io.RawIOBase):
    """A socket's bytes until `restart` + its seconds; then every read raises TimeoutError."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = 0.0

    def restart(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class Connection(BaseHTTPRequestHandler):
    """Serves requests until the peer leaves, is slow, or breaks the rules.

    `server` carries the configuration.
    """

    protocol_version = "HTTP/1.1"
    # Not 0.9, in whose answers there is no room for a status.
    default_request_version = "HTTP/1.0"
    server_version = "hotstage"
    sys_version = ""

    def setup(self) -> None:
        listener = cast("ListenerFacts", self.server)
        self._listener = listener
        self.connection: socket.socket = self.request
        if self.connection.family != socket.AF_UNIX:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)
        # Bounded as well: a slow reader is dropped like a slow sender.
        self.wfile = _Writer(self.connection, listener.timeout_seconds)
        self._peer = _peer(self.connection, self.client_address)
        self.close_connection = True

    def finish(self) -> None:
        self.rfile.close()

    def handle_one_request(self) -> None:
        """Read one request within the deadline, answer it.

        A peer that is late or gone just loses the connection.
        """
        self._listener.waits(self.connection)
        self._reader.restart(self._listener.timeout_seconds)
        try:
            self.raw_requestline = self.rfile.readline(MAX_LINE_BYTES + 1)
            if not self.raw_requestline:
                self.close_connection = True
                return
            if len(self.raw_requestline) > MAX_LINE_BYTES:
                self.requestline = self.request_version = self.command = ""
                self.send_error(414)
                return
            # It answers a malformed request by itself, through `send_error`.
            if self.parse_request():
                self._serve()
        except (OSError, ValueError) as error:
            self.log_message("connection given up: %s", error)
            self.close_connection = True

    def _serve(self) -> None:
        request = None
        try:
            request = self._request()
            self._listener.works(self.connection)
            answer = self._answer(request)
        except ApiError as error:
            answer = error.response()
        if isinstance(answer, Stream):
            try:
                self._stream(answer)
            finally:
                answer.end()
        elif request is not None:
            self._respond(answer.for_request(request))
        else:
            # The body was not read, so the next request could not be found behind it.
            self.close_connection = True
            self._respond(answer)
            self._discard()

    def _answer(self, request: Request) -> Response | Stream:
        try:
            return self._listener.answer(request)
        except ApiError:
            raise
        except Exception:
            log.exception("request failed", extra={"request": self.requestline[:200]})
            return _FAILED.response()

    def _discard(self) -> None:
        """Take a little of what the peer still sends: closing on unread bytes would reset our answer away."""
        self._reader.restart(0.2)
        with contextlib.suppress(OSError):
            for _ in range(16):
                if not self.rfile.read1(MAX_BODY_BYTES):
                    break

    def _request(self) -> Request:
        if self.request_version not in ("HTTP/1.0", "HTTP/1.1"):
            raise ApiError(400, "bad_request", "not HTTP/1.1", "use an HTTP/1.1 client")
        headers = {name.lower(): value for name, value in self.headers.items()}
        access = self._listener.access
        if not self._peer.is_local_socket:
            access.check_host(headers.get("host"))
        try:
            parts = urlsplit(self.path)
        except ValueError as error:
            raise ApiError(400, "bad_request", f"the path: {error}", "send a path") from error
        return Request(
            method=self.command,
            # Split before decoding: %2F belongs to a name, it does not make a path longer.
            segments=tuple(unquote(part) for part in parts.path.split("/")[1:]),
            query=_query(parts.query),
            headers=headers,
            body=self._body(headers),
            peer=self._peer,
            is_authorised=access.is_authorised(headers.get("authorization")),
        )

    def _body(self, headers: dict[str, str]) -> bytes:
        if "transfer-encoding" in headers or len(self.headers.get_all("content-length", [])) > 1:
            raise ApiError(411, "no_length", "the body's length is not given", "send one Content-Length")
        text = headers.get("content-length", "0")
        # Of thousands of digits `int` makes nothing.
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
            raise ApiError(400, "bad_length", f"Content-Length: {text[:32]}", "send a number of bytes")
        length = int(text)
        if length > MAX_BODY_BYTES:
            raise ApiError(413, "body_too_large", f"{length} bytes", f"send at most {MAX_BODY_BYTES} bytes")
        body = self.rfile.read(length)
        if len(body) != length:
            raise ConnectionError("the body ended early")
        return body

    def _respond(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if "Content-Type" not in response.headers and response.status != 304:
            self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        # One write: head and body leave in one segment where they fit.
        head = b"".join(cast("Any", self)._headers_buffer) + b"\r\n"
        cast("Any", self)._headers_buffer = []
        self._listener.waits(self.connection)
        self.wfile.write(head if self.command == "HEAD" or response.status == 304 else head + response.body)

    def _stream(self, stream: Stream) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in (
            ("Content-Type", stream.content_type),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            stream.write(self.wfile)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class rejects (a malformed line or header), in our form."""
        self.close_connection = True
        reason = message or explain or "malformed request"
        self._respond(
            ApiError(code, "bad_request", str(reason)[:200], "send well-formed HTTP/1.1").response()
        )

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)

    def version_string(self) -> str:
        return self.server_version


class ListenerFacts:
    """What a connection needs to know of its listener."""

    access: Access
    answer: Answer
    timeout_seconds: float

    def waits(self, connection: socket.socket) -> None: ...

    def works(self, connection: socket.socket) -> None: ...


class _Writer(io.BufferedIOBase):
    """Writes all or raises, within a time that starts anew with each write."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        """Part by part under one deadline: `sendall` of a TLS socket gives each record a time of its own."""
        until = time.monotonic() + self._seconds
        rest = memoryview(data)
        while rest:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the peer takes the answer too slowly")
            self._connection.settimeout(left)
            rest = rest[self._connection.send(rest) :]
        return memoryview(data).nbytes


def _query(text: str) -> dict[str, str]:
    try:
        # An empty value is one: left out, a filter that somebody meant would be none.
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS))
    except ValueError as error:
        raise ApiError(
            400, "bad_query", "too many fields in the query", f"send at most {MAX_QUERY_FIELDS}"
        ) from error


def _peer(connection: socket.socket, address: Any) -> Peer:
    if connection.family != socket.AF_UNIX:
        return Peer(str(address[0]))
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(f"uid {uid}", uid=uid, gid=gid, pid=pid)


_FAILED = ApiError(500, "internal", "the agent failed to answer", "see the agent's log; please report it")
