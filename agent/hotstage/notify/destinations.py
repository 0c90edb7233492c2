# SPDX-License-Identifier: Apache-2.0
"""Where events may go: a URL checked at start, its address resolved and checked at each attempt, then pinned.

Only root writes the URLs, but names are answered by others: what resolves into this host's own neighbourhood
(metadata services above all) is refused, and the connection goes to the very address that was checked.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from hotstage.config import settings
from hotstage.errors import ConfigError
from hotstage.notify.signing import Secret, parse_secrets

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], list[str]]

# Forms that carry an IPv4 address inside, which the checks for IPv4 would not see: 4-in-6, NAT64, 6to4,
# Teredo.
_CARRIERS = tuple(
    ipaddress.IPv6Network(network)
    for network in ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
)
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")  # neither private nor global to `ipaddress`


class RefusedAddressError(Exception):
    """The name leads to an address that events must not go to."""


@dataclass(frozen=True, slots=True)
class Target:
    """One destination, checked: what delivery needs, no more.

    Its repr shows neither secrets nor the URL's query.
    """

    name: str
    is_tls: bool
    host: str
    port: int
    path: str = field(repr=False)
    format: str
    types: tuple[str, ...]
    allow_private: bool
    secrets: tuple[Secret, ...] = field(repr=False)

    @classmethod
    def of(cls, config: settings.Destination, environment: Mapping[str, str]) -> Target:
        """Raises ConfigError that names the destination; never shows a secret."""
        where = f"notify.destinations {config.name}"
        parts, port = _split(config.url, where)
        host = parts.hostname or ""
        if parts.scheme == "http" and not _is_loopback_name(host):
            raise ConfigError(f"{where}: http is for loopback only", remedy="use an https URL")
        return cls(
            name=config.name,
            is_tls=parts.scheme == "https",
            host=host,
            port=port or (443 if parts.scheme == "https" else 80),
            path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
            format=config.format,
            types=tuple(config.types),
            allow_private=config.allow_private,
            secrets=_secrets(config, environment, where),
        )

    @property
    def shown_url(self) -> str:
        """For logs and for telling a changed target: no query, which may hold a key."""
        scheme = "https" if self.is_tls else "http"
        return f"{scheme}://{self.host}:{self.port}{self.path.partition('?')[0]}"

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_tls else 80) else f"{name}:{self.port}"

    def wants(self, event_type: str) -> bool:
        """Whether it gets this type: all if none is named, else those that begin like one of them."""
        return not self.types or any(event_type.startswith(prefix) for prefix in self.types)

    def resolve(self, resolver: Resolver) -> str:
        """The address to connect to. Raises OSError, or RefusedAddressError if any answer is not allowed.

        Any, not the first: an answer that mixes allowed and forbidden addresses is somebody trying.
        """
        addresses = resolver(self.host, self.port)
        if not addresses:
            raise OSError(f"{self.host} has no address")
        for address in addresses:
            reason = self._refusal(ipaddress.ip_address(address))
            if reason:
                raise RefusedAddressError(f"{self.host} is {address}, {reason}")
        return addresses[0]

    def _refusal(self, address: Address) -> str | None:
        if address.is_loopback:
            allowed = self.allow_private or _is_loopback_name(self.host)
            return None if allowed else "a loopback address under another name"
        if not self.is_tls:
            return "not loopback, and http is for loopback only"
        return why_refused(address, self.allow_private)


def why_refused(address: Address, allow_private: bool) -> str | None:
    """Why events must not go to `address` (not loopback); None if they may."""
    if isinstance(address, IPv6Address) and any(address in network for network in _CARRIERS):
        return "an IPv4 address in disguise"
    if address in _METADATA or address.is_link_local:
        return "a link-local or metadata address"
    if address.is_multicast or address.is_unspecified or address.is_reserved:
        return "no host's address"
    is_private = address.is_private or (isinstance(address, IPv4Address) and address in _SHARED)
    if is_private and not allow_private:
        return "a private address (allow_private permits it)"
    if not is_private and not address.is_global:
        return "not a public address"
    return None


def system_resolver(host: str, port: int) -> list[str]:
    """What the system says, in its order. Raises OSError."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # A label that no name may have; not an OSError, but to a delivery it is the same.
        raise OSError(f"{host}: {error}") from error
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _split(url: str, where: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{where}: the URL is malformed", remedy="https://host[:port]/path") from error
    is_clean = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_clean:
        raise ConfigError(f"{where}: not an http(s) URL", remedy="https://host[:port]/path")
    if parts.username is not None:
        raise ConfigError(
            f"{where}: user and password in a URL", remedy="receivers check the signature; use secret_file"
        )
    return parts, port


def _is_loopback_name(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _secrets(config: settings.Destination, environment: Mapping[str, str], where: str) -> tuple[Secret, ...]:
    if config.secret_file is not None:
        # A relative name is a systemd credential: LoadCredential= puts it into this directory.
        path = Path(environment.get("CREDENTIALS_DIRECTORY", os.curdir)) / config.secret_file
        try:
            return parse_secrets(path.read_text(), f"{where}: {path}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise ConfigError(f"{where}: {path}: {reason}", remedy="check secret_file") from error
    if config.secret_env is not None:
        text = environment.get(config.secret_env, "")
        return parse_secrets(text.replace(" ", "\n"), f"{where}: environment variable {config.secret_env}")
    if config.format == "cloudevents":
        raise ConfigError(f"{where}: no signing secret", remedy="set secret_file or secret_env")
    return ()
