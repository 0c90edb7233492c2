# SPDX-License-Identifier: Apache-2.0
"""How the reading verbs ask a running agent: its Unix socket where they may, its TCP address otherwise."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hotstage.config.settings import HttpConfig
from hotstage.errors import HotstageError, PeerError, PrivilegeError

TIMEOUT_SECONDS = 10.0
_BODY_LIMIT_BYTES = 64 << 20


class AgentClient:
    """Requests to one agent; every failure names the address and the remedy."""

    def __init__(
        self,
        *,
        url: str | None = None,
        socket_path: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._url = url
        self._socket_path = socket_path
        self._timeout_seconds = timeout_seconds

    @classmethod
    def of(
        cls, config: HttpConfig, url: str | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> AgentClient:
        """The agent at `url`, else the configured one: by socket if this user may use it."""
        if not url and os.access(config.socket, os.R_OK | os.W_OK):
            return cls(socket_path=config.socket, timeout_seconds=timeout_seconds)
        scheme = "http" if config.tls_certificate_file is None else "https"
        return cls(url=url or f"{scheme}://{config.listen}", timeout_seconds=timeout_seconds)

    @property
    def address(self) -> str:
        return self._socket_path or self._url or ""

    def get(self, path: str) -> Any:
        """The JSON body of `path`. Raises PeerError, or HotstageError with the agent's own message."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request; `body` is sent as JSON."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        connection = self._connect()
        try:
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            status, text = response.status, response.read(_BODY_LIMIT_BYTES)
        except PermissionError as error:
            raise PrivilegeError(
                f"{self.address}: not allowed to connect", remedy="run as root or join the socket's group"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise PeerError(
                f"no agent answers at {self.address}: {error}",
                remedy="start one with `hotstage agent` or `hotstage up`, or name another with --agent URL",
            ) from error
        finally:
            connection.close()
        return _answer(status, text, self.address, path)

    def _connect(self) -> http.client.HTTPConnection:
        if self._socket_path:
            return _UnixConnection(self._socket_path, self._timeout_seconds)
        parts = urlsplit(self._url or "")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise HotstageError(
                f"{self._url}: not an http(s) URL", remedy="for example http://127.0.0.1:9178"
            )
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=self._timeout_seconds)


def _answer(status: int, text: bytes, address: str, path: str) -> Any:
    try:
        body = json.loads(text) if text else {}
    except ValueError as error:
        raise PeerError(
            f"{address}{path}: the answer is not JSON", remedy="is something else listening there?"
        ) from error
    if status >= 400 and path != "/healthz":
        problem = body.get("error", {}) if isinstance(body, dict) else {}
        raise HotstageError(
            f"{path}: {problem.get('message', f'HTTP {status}')}", remedy=problem.get("remedy") or None
        )
    return body


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = str(Path(path))

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
