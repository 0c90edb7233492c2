# SPDX-License-Identifier: Apache-2.0
"""Where events may go: a URL checked at start, its address resolved and checked at each attempt, then pinned.

A destination that must not be is refused by itself, with its reason and remedy; the others go on, and what is
meant for it waits.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from hotstage.config.notify import Destination
from hotstage.config.render import redacted_url
from hotstage.errors import ConfigError
from hotstage.notify import addresses
from hotstage.notify.credentials import authorization, destination_url, signing_secrets
from hotstage.notify.formats import ALERTING
from hotstage.notify.signing import Secret

Resolver = Callable[[str, int], list[str]]

ALERTS_PATH = "/api/v2/alerts"
_SHAPE = "https://host[:port]/path"


class RefusedAddressError(Exception):
    """The name leads to an address that events must not go to."""

    def __init__(self, host: str, address: str, refusal: addresses.Refusal) -> None:
        super().__init__(f"{host} is {address}, {refusal.reason}")
        self.remedy = refusal.remedy


@dataclass(frozen=True, slots=True)
class Target:
    """One destination, checked: what delivery needs, no more.

    Its repr shows neither secrets nor the URL's path and query, which may hold a key.
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
    authorization: str | None = field(repr=False)
    resend_seconds: float
    shown_url: str
    """For people and logs."""
    identity: str
    """Tells whether the URL is still the same, without holding it."""

    @classmethod
    def of(cls, config: Destination, environment: Mapping[str, str]) -> Target:
        """Raises ConfigError that names the destination; never shows a secret."""
        where = _where(config)
        url = destination_url(config, environment, where)
        parts, port = _checked(url, config.allow_private, where)
        path = parts.path or "/"
        if config.format == "alertmanager" and not path.endswith(ALERTS_PATH):
            path = path.rstrip("/") + ALERTS_PATH
        return cls(
            name=config.name,
            is_tls=parts.scheme == "https",
            host=parts.hostname or "",
            port=port,
            path=path + (f"?{parts.query}" if parts.query else ""),
            format=config.format,
            types=tuple(config.types),
            allow_private=config.allow_private,
            secrets=signing_secrets(config, environment, where),
            authorization=authorization(config, environment, where),
            resend_seconds=config.resend_seconds,
            shown_url=redacted_url(url),
            identity=_identity(url),
        )

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_tls else 80) else f"{name}:{self.port}"

    def wants(self, event_type: str) -> bool:
        """Whether it gets this type: all if none is named, else those that begin like one of them.

        Who is told of an alert's beginning is told of its end as well.
        """
        return _wants(self.types, event_type, self.format)

    def resolve(self, resolver: Resolver) -> str:
        """The address to connect to. Raises OSError, or RefusedAddressError if any answer is not allowed.

        Any, not the first: an answer that mixes allowed and forbidden addresses is somebody trying.
        """
        answers = resolver(self.host, self.port)
        if not answers:
            raise OSError(f"{self.host} has no address")
        for answer in answers:
            address = addresses.literal(answer)
            if address is None:
                raise OSError(f"{self.host} has no address but {answer!r}")
            refusal = _why_refused(self.host, address, is_tls=self.is_tls, allow_private=self.allow_private)
            if refusal is not None:
                raise RefusedAddressError(self.host, answer, refusal)
        return answers[0]


@dataclass(frozen=True, slots=True)
class RefusedTarget:
    """A destination that nothing is sent to. What it would get is kept until the configuration is mended."""

    name: str
    format: str
    types: tuple[str, ...]
    shown_url: str
    identity: str
    reason: str
    remedy: str | None

    def wants(self, event_type: str) -> bool:
        return _wants(self.types, event_type, self.format)


def read_targets(
    destinations: Iterable[Destination], environment: Mapping[str, str]
) -> tuple[list[Target], list[RefusedTarget]]:
    """Those to deliver to, and those refused. Raises ConfigError for two of one name: only a name tells whom
    an event waits for.
    """
    targets: list[Target] = []
    refused: list[RefusedTarget] = []
    for config in _named_apart(destinations):
        try:
            targets.append(Target.of(config, environment))
        except ConfigError as error:
            refused.append(
                RefusedTarget(
                    config.name,
                    config.format,
                    tuple(config.types),
                    f"in {config.url_file}" if config.url is None else redacted_url(config.url),
                    _identity(config.url or ""),
                    error.message,
                    error.remedy,
                )
            )
    return targets, refused


def unsafe(destinations: Iterable[Destination]) -> list[ConfigError]:
    """What is wrong with the URLs, as far as the text tells: no file is read, no name is resolved.

    Raises ConfigError for two of one name.
    """
    found = []
    for config in _named_apart(destinations):
        try:
            if config.url is not None or config.url_file is None:
                _checked(destination_url(config, {}, _where(config)), config.allow_private, _where(config))
        except ConfigError as error:
            found.append(error)
    return found


def system_resolver(host: str, port: int) -> list[str]:
    """What the system says, in its order. Raises OSError."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # A label that no name may have; not an OSError, but to a delivery it is the same.
        raise OSError(f"{host}: {error}") from error
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _named_apart(destinations: Iterable[Destination]) -> Iterator[Destination]:
    seen: set[str] = set()
    for config in destinations:
        if config.name in seen:
            raise ConfigError(
                f"two destinations are named {config.name}", remedy="names tell destinations apart"
            )
        seen.add(config.name)
        yield config


def _where(config: Destination) -> str:
    return f"notify.destinations {config.name}"


def _checked(url: str, allow_private: bool, where: str) -> tuple[SplitResult, int]:
    """The URL's parts and port. Raises ConfigError; the message never holds more than the host."""
    parts, port = _split(url, where)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    address = addresses.literal(host)
    refusal = addresses.why_misspelled(host)
    if refusal is None and address is not None:
        refusal = _why_refused(host, address, is_tls=is_tls, allow_private=allow_private)
    if refusal is not None:
        raise ConfigError(f"{where}: {host} is {refusal.reason}", remedy=refusal.remedy)
    if not is_tls and not addresses.is_loopback_name(host):
        raise ConfigError(f"{where}: http is for loopback only", remedy="use an https URL")
    return parts, (443 if is_tls else 80) if port is None else port


def _split(url: str, where: str) -> tuple[SplitResult, int | None]:
    if not url.isascii():
        raise ConfigError(
            f"{where}: the URL has characters outside ASCII",
            remedy="write an international name in its xn-- form and encode the rest with %",
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{where}: the URL is malformed", remedy=_SHAPE) from error
    is_clean = url.isprintable() and " " not in url and "\\" not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_clean:
        raise ConfigError(f"{where}: not an http(s) URL", remedy=_SHAPE)
    if parts.username is not None:
        raise ConfigError(
            f"{where}: user and password in a URL",
            remedy="put user:password into a file and name it as authorization_file",
        )
    if port == 0:
        raise ConfigError(f"{where}: nobody can listen on port 0", remedy=_SHAPE)
    if parts.fragment:
        raise ConfigError(f"{where}: what follows a # is never sent", remedy="write # in a path as %23")
    return parts, port


def _why_refused(
    host: str, address: addresses.Address, *, is_tls: bool, allow_private: bool
) -> addresses.Refusal | None:
    if addresses.is_loopback(address):
        if allow_private or addresses.is_loopback_name(host):
            return None
        return addresses.Refusal(
            "a loopback address under another name", "write localhost, or set allow_private = true"
        )
    never = addresses.why_refused(address, allow_private=True)
    if never is None and not is_tls:
        return addresses.Refusal("not loopback, and http is for loopback only", "use an https URL")
    return never or addresses.why_refused(address, allow_private=allow_private)


def _wants(types: tuple[str, ...], event_type: str, format_name: str) -> bool:
    if not types or any(event_type.startswith(prefix) for prefix in types):
        return True
    # `io.hotstage.window.` of `io.hotstage.window.closed.v1`
    family = ".".join(event_type.split(".")[:3]) + "."
    return format_name in ALERTING and any(prefix.startswith(family) for prefix in types)


def _identity(url: str) -> str:
    return f"{redacted_url(url)} {hashlib.blake2b(url.encode(), digest_size=12).hexdigest()}"
