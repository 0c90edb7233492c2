# SPDX-License-Identifier: Apache-2.0
"""Who may ask what: Host check on loopback, the bearer token, the group of the Unix socket.

It opens no socket.
"""

from __future__ import annotations

import grp
import hmac
import ipaddress
import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path

from hotstage.api.message import ApiError, Peer
from hotstage.config.settings import HttpConfig
from hotstage.errors import ConfigError

_MIN_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one listener configuration. `token` never shows in a repr."""

    host: str
    port: int
    is_loopback: bool
    token: bytes | None = field(repr=False)
    operators_group: str | None

    @classmethod
    def of(cls, config: HttpConfig) -> Access:
        """Raises ConfigError for an address that is none, an empty token, or an open address without one."""
        host, port = parse_address(config.listen)
        is_loopback = _is_loopback(host)
        token = None if config.token_file is None else _read_token(Path(config.token_file))
        if not is_loopback and token is None:
            raise ConfigError(
                f"http.listen = {config.listen} is open to other hosts without a token",
                remedy="set http.token_file, or listen on 127.0.0.1",
            )
        return cls(host, port, is_loopback, token, config.socket_group)

    def check_host(self, header: str | None) -> None:
        """A loopback address answers to its own names only: a web page may rebind a name of its own to it."""
        if header is None:
            raise ApiError(400, "no_host", "the Host header is missing", "send HTTP/1.1 with a Host header")
        if self.is_loopback and not _is_loopback(_without_port(header)):
            raise ApiError(
                421, "wrong_host", f"not served as {header[:100]}", f"use http://127.0.0.1:{self.port}"
            )

    def is_authorised(self, authorization: str | None) -> bool:
        """Whether this `Authorization` header carries the token."""
        scheme, _, given = (authorization or "").partition(" ")
        if self.token is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), self.token)

    def may_operate(self, peer: Peer, is_authorised: bool) -> bool:
        """Whether this peer may override a breaker: root, the agent's own user, an operator, or by token.

        The operators are those whom the administrator has put into the socket's group; the notifier, whose
        primary group it may be, is not one of them.
        """
        if is_authorised:
            return True
        if peer.uid is None:
            return False
        return peer.uid in (0, os.geteuid()) or self._is_operator(peer.uid)

    def _is_operator(self, uid: int) -> bool:
        if self.operators_group is None:
            return False
        try:
            return pwd.getpwuid(uid).pw_name in grp.getgrnam(self.operators_group).gr_mem
        except KeyError:
            return False


def parse_address(listen: str) -> tuple[str, int]:
    """`127.0.0.1:9178`, `[::1]:9178`, `localhost:9178` → host and port. Raises ConfigError."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{listen}: not an address:port", remedy="for example 127.0.0.1:9178")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _read_token(path: Path) -> bytes:
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"http.token_file {path}: {error.strerror}", remedy="check the path") from error
    if len(token) < _MIN_TOKEN_BYTES:
        raise ConfigError(
            f"http.token_file {path}: shorter than {_MIN_TOKEN_BYTES} bytes", remedy="`openssl rand -hex 32`"
        )
    return token
