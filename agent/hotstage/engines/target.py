# SPDX-License-Identifier: Apache-2.0
"""Configured engines → where to ask and as whom; whatever makes one unusable is said at once. No network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from hotstage.config.engines import EngineEndpoint
from hotstage.config.render import redacted_url
from hotstage.engines.sglang import SGLANG
from hotstage.engines.table import Table
from hotstage.engines.triton import TRITON
from hotstage.engines.vllm import VLLM
from hotstage.errors import ConfigError

TABLES: tuple[Table, ...] = (TRITON, VLLM, SGLANG)
"""In the order in which a page is tried: Triton's may carry vLLM's names as well."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TOKEN_LENGTH = 8192


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """One engine to look at. `table` None = told by its page."""

    name: str
    instance: str
    host: str
    port: int
    path: str
    is_tls: bool
    is_loopback: bool
    table: Table | None
    token_file: Path | None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.path}"

    @property
    def shown_url(self) -> str:
        """For people and logs: a path may hold a key."""
        return redacted_url(self.url)

    def token(self) -> str | None:
        """The bearer token as the file has it now. Raises OSError, UnicodeError."""
        if self.token_file is None:
            return None
        with self.token_file.open(encoding="ascii") as file:
            return file.read(_TOKEN_LENGTH).strip()


def read_targets(endpoints: Iterable[EngineEndpoint]) -> tuple[EngineTarget, ...]:
    """Raises ConfigError for the first that cannot be used."""
    targets = tuple(_target(each) for each in endpoints)
    for key in ("name", "instance"):
        names = Counter(getattr(each, key) for each in targets)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise ConfigError(
                f"engines.endpoints: two have the {key} {twice}",
                remedy=f"give each a {key} of its own: their numbers would be mixed",
            )
    return targets


def _target(endpoint: EngineEndpoint) -> EngineTarget:
    place = f"engines.endpoints {endpoint.name}"
    try:
        parts = urlsplit(endpoint.url)
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"{place}: {redacted_url(endpoint.url)}: not a URL", remedy="http://host:port"
        ) from error
    if not host:
        raise ConfigError(f"{place}: {redacted_url(endpoint.url)} names no host", remedy="http://host:port")
    is_tls, is_loopback = parts.scheme == "https", _is_loopback(host)
    if endpoint.token_file is not None and not (is_tls or is_loopback):
        raise ConfigError(
            f"{place}: the token would cross the network in the clear",
            remedy="use https, or an engine on this host",
        )
    return EngineTarget(
        name=endpoint.name,
        instance=endpoint.instance or endpoint.name,
        host=host,
        port=port,
        path=parts.path if parts.path not in ("", "/") else "/metrics",
        is_tls=is_tls,
        is_loopback=is_loopback,
        table=next((table for table in TABLES if table.runtime == endpoint.kind), None),
        token_file=None if endpoint.token_file is None else Path(endpoint.token_file),
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
