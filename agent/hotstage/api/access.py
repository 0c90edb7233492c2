# SPDX-License-Identifier: Apache-2.0
"""Who may ask what: Host check on loopback, TLS and the bearer token, the group of the Unix socket.

It opens no socket.
"""

from __future__ import annotations

import grp
import hmac
import ipaddress
import os
import pwd
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from hotstage.api.message import ApiError, Peer
from hotstage.config.settings import HttpConfig
from hotstage.config.source import is_token, read_text
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
    tls: ssl.SSLContext | None = None
    """Set: the TCP listener speaks TLS only. The Unix socket never does."""

    @classmethod
    def of(cls, config: HttpConfig) -> Access:
        """Raises ConfigError for an address that is none, an empty token, a certificate that cannot be used,
        or an open address without token and TLS.
        """
        host, port = parse_address(config.listen)
        is_loopback = _is_loopback(host)
        token = None if config.token_file is None else _read_token(Path(config.token_file))
        if not is_loopback and token is None:
            raise ConfigError(
                f"http.listen = {config.listen} is open to other hosts without a token",
                remedy="set http.token_file, or listen on 127.0.0.1",
            )
        tls = _tls(config.tls_certificate_file, config.tls_key_file)
        if not is_loopback and tls is None and not config.allow_plaintext:
            raise ConfigError(
                f"http.listen = {config.listen} is open to other hosts without TLS",
                remedy="set http.tls_certificate_file and http.tls_key_file; where a mesh or a tunnel"
                " encrypts, http.allow_plaintext = true",
            )
        return cls(host, port, is_loopback, token, config.socket_group, tls)

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


def group_id(name: str) -> int:
    """Raises ConfigError for a group that does not exist."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            f"http.socket_group: no group {name}", remedy="create it or unset the key"
        ) from None


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
        text = read_text(path).strip()
    except ConfigError as error:
        raise ConfigError(f"http.token_file {error.message}", remedy=error.remedy) from error
    if len(text) < _MIN_TOKEN_BYTES:
        raise ConfigError(
            f"http.token_file {path}: shorter than {_MIN_TOKEN_BYTES} bytes", remedy="`openssl rand -hex 32`"
        )
    if not is_token(text):
        raise ConfigError(
            f"http.token_file {path}: not one word of ASCII, so that no client could send it",
            remedy="`openssl rand -hex 32`",
        )
    return text.encode()


def _tls(certificate_file: str | None, key_file: str | None) -> ssl.SSLContext | None:
    """TLS 1.2 and later with Python's choice of ciphers; None where no certificate is configured."""
    if certificate_file is None and key_file is None:
        return None
    if certificate_file is None or key_file is None:
        given = "tls_certificate_file" if key_file is None else "tls_key_file"
        raise ConfigError(f"http.{given} stands alone", remedy="certificate and key go together")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase would ask on the terminal; an empty answer makes it an error.
        context.load_cert_chain(certificate_file, key_file, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"http.tls_certificate_file {certificate_file}, http.tls_key_file {key_file}: {reason}",
            remedy="PEM files, the key without a passphrase and of that very certificate",
        ) from error
    return context
