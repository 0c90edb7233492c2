# SPDX-License-Identifier: Apache-2.0
"""How the reading verbs ask a running agent: its Unix socket where they may, its TCP address otherwise.

Whoever answers may be another program: an answer has one deadline in all and an end, and is a JSON object.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import socket
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hotstage.cli.terminal import plain
from hotstage.config.settings import HttpConfig
from hotstage.errors import HotstageError, PeerError, PrivilegeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

TIMEOUT_SECONDS = 10.0
_BODY_LIMIT_BYTES = 64 << 20
_OTHER_PROGRAM = "is something else listening there, or an agent of another version?"


class AgentClient:
    """Requests to one agent; every failure names the address and the remedy.

    `timeout_seconds` is for an answer as a whole, however its bytes come.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        socket_path: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        ca_file: str | None = None,
        token: str | None = None,
    ) -> None:
        """`ca_file` is whom to trust beside those that this machine trusts; `token` is sent over TLS only."""
        self._url = url
        self._socket_path = socket_path
        self._timeout_seconds = timeout_seconds
        self._ca_file = ca_file
        self._token = token

    @classmethod
    def of(
        cls,
        config: HttpConfig,
        url: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        ca_file: str | None = None,
        token: str | None = None,
    ) -> AgentClient:
        """The agent at `url`, else the configured one: by socket if this user may use it."""
        if not url and os.access(config.socket, os.R_OK | os.W_OK):
            return cls(socket_path=config.socket, timeout_seconds=timeout_seconds)
        scheme = "http" if config.tls_certificate_file is None else "https"
        return cls(
            url=url or f"{scheme}://{config.listen}",
            timeout_seconds=timeout_seconds,
            ca_file=ca_file,
            token=token,
        )

    @property
    def address(self) -> str:
        return self._socket_path or self._url or ""

    @property
    def may_operate(self) -> bool:
        """Whether the way to the agent can be one of an operator: its socket, or a token over TLS."""
        return self._socket_path is not None or (
            self._token is not None and (self._url or "").startswith("https://")
        )

    def get(self, path: str) -> Any:
        """The JSON object at `path`. Raises PeerError, or HotstageError with the agent's own message."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request; `body` is sent as JSON."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        connection = self._connect()
        if self._token is not None and isinstance(connection, http.client.HTTPSConnection):
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, payload, headers)
            with connection.getresponse() as response:
                status, text = response.status, response.read(_BODY_LIMIT_BYTES + 1)
        except PermissionError as error:
            raise PrivilegeError(
                f"{self.address}: not allowed to connect", remedy="run as root or join the socket's group"
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise PeerError(
                f"{self.address}: its certificate is not trusted: {plain(error.verify_message)}",
                remedy="name the certificate, or that of its issuer, with --ca-file",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise PeerError(
                f"no agent answers at {self.address}: {plain(str(error))}",
                remedy="start one with `hotstage agent` or `hotstage up`; name one elsewhere with"
                " --agent URL or --socket PATH, and a running `hotstage demo` prints those of its own",
            ) from error
        finally:
            connection.close()
        return _answer(status, text, self.address, path)

    def _connect(self) -> http.client.HTTPConnection:
        if self._socket_path:
            made: http.client.HTTPConnection = _UnixConnection(self._socket_path, self._timeout_seconds)
        else:
            is_secure, host, port = _parts(self._url or "")
            if is_secure:
                context = _trusting(self._ca_file)
                made = http.client.HTTPSConnection(host, port, timeout=self._timeout_seconds, context=context)
            else:
                made = http.client.HTTPConnection(host, port, timeout=self._timeout_seconds)
        made.response_class = _Response
        return made


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise HotstageError(
                f"{ca_file}: no certificates can be read: {error.strerror or error}",
                remedy="--ca-file names a PEM file with at least one certificate",
            ) from error
    return context


def _parts(url: str) -> tuple[bool, str, int | None]:
    """(over TLS, host, port)."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:
        host, port = "", None
    if not host or " " in host or not host.isprintable() or parts.scheme not in {"http", "https"}:
        raise HotstageError(f"{url}: not an http(s) URL", remedy="for example http://127.0.0.1:9178")
    return parts.scheme == "https", host, port


def _answer(status: int, text: bytes, address: str, path: str) -> dict[str, Any]:
    if len(text) > _BODY_LIMIT_BYTES:
        raise PeerError(
            f"{address}{path}: the answer is longer than {_BODY_LIMIT_BYTES >> 20} MiB", remedy=_OTHER_PROGRAM
        )
    try:
        body = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise PeerError(f"{address}{path}: the answer is not JSON", remedy=_OTHER_PROGRAM) from error
    if not isinstance(body, dict):
        raise PeerError(f"{address}{path}: the answer is no JSON object", remedy=_OTHER_PROGRAM)
    if status >= 400 and path != "/healthz":
        problem = body.get("error")
        problem = problem if isinstance(problem, dict) else {}
        remedy = problem.get("remedy")
        raise HotstageError(
            plain(str(problem.get("message", f"{address}{path}: HTTP {status}"))),
            remedy=_in_commands(plain(str(remedy))) if remedy else None,
        )
    return body


_COMMANDS = {
    "/v1/requests": "requests",
    "/v1/snapshot": "snapshot",
    "/v1/snapshots": "snapshot list",
    "/v1/windows": "windows",
    "/v1/breakers": "breakers",
    "/v1/stages": "stages",
    "/v1/stages/explain?pid=PID": "stages explain PID",
}


def _in_commands(remedy: str) -> str:
    """The agent speaks to whoever asks over HTTP; here a command says the same."""
    return re.sub(
        r"/v1/[a-z/]+(?:\?pid=PID)?",
        lambda path: f"`hotstage {_COMMANDS[path[0]]}`" if path[0] in _COMMANDS else path[0],
        remedy,
    )


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
        self._until = time.monotonic() + (sock.gettimeout() or TIMEOUT_SECONDS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer does not end in time")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = str(Path(path))

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
