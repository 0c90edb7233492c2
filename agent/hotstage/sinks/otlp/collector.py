# SPDX-License-Identifier: Apache-2.0
"""Where exports go: `[otlp]` and the standard `OTEL_…` variables → one address a signal. No connection here.

`[otlp] endpoint` has precedence over the environment, a signal's own variable over the common one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from hotstage.config.settings import OtlpConfig
from hotstage.config.source import read_text
from hotstage.errors import ConfigError

_PATHS = {"traces": "v1/traces", "metrics": "v1/metrics", "logs": "v1/logs"}


@dataclass(frozen=True, slots=True)
class Collector:
    """URLs of the signals, None where one is off. `headers` may hold secrets and are never shown."""

    traces: str | None
    metrics: str | None
    events: str | None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def signals(self) -> tuple[str, ...]:
        """Those that are on."""
        return tuple(name for name in ("traces", "metrics", "events") if getattr(self, name) is not None)

    @classmethod
    def of(cls, config: OtlpConfig, environment: Mapping[str, str]) -> Collector | None:
        """None when nothing is to be exported. Raises ConfigError for a bad address or headers file."""
        if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return None
        found = cls(
            traces=_address("traces", config.endpoint, environment) if config.traces else None,
            metrics=_address("metrics", config.endpoint, environment) if config.metrics else None,
            events=_address("logs", config.endpoint, environment) if config.events else None,
            headers={} if config.headers_file is None else read_headers(Path(config.headers_file)),
        )
        return found if found.signals else None


def shown(url: str) -> str:
    """The URL for logs: what stands after its `?` may be a token."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "…" if parts.query else "", ""))


def read_headers(path: Path) -> dict[str, str]:
    """Headers of a file with one `name=value` a line; empty lines and `#` comments are left out.

    Raises ConfigError; its message holds no value.
    """
    try:
        lines = read_text(path).splitlines()
    except ConfigError as error:
        reason = error.message.removeprefix(f"{path}: ")
        raise ConfigError(
            f"otlp.headers_file {path} cannot be read: {reason}", remedy="name a file that the agent may read"
        ) from error
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not _is_token(name.strip()) or not _is_value(value.strip()):
            raise ConfigError(
                f"otlp.headers_file {path}, line {number} is no header", remedy="write `name=value` in ASCII"
            )
        headers[name.strip().lower()] = value.strip()
    return headers


def _address(signal: str, endpoint: str | None, environment: Mapping[str, str]) -> str | None:
    path = _PATHS[signal]
    if endpoint:
        return _below(_checked(endpoint, "otlp.endpoint"), path)
    variable = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    if own := environment.get(variable):
        return _checked(own, variable)
    if base := environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return _below(_checked(base, "OTEL_EXPORTER_OTLP_ENDPOINT"), path)
    return None


def _below(base: str, path: str) -> str:
    """The base with a path appended, before its query."""
    parts = urlsplit(base)
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{path}", parts.query, ""))


def _checked(url: str, key: str) -> str:
    """The URL; it may end up in a log, so it must not carry a password."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{key} is no http(s) URL", remedy="write e.g. `http://127.0.0.1:4318`")
    if parts.username or parts.password:
        raise ConfigError(
            f"{key} holds a user name or password",
            remedy="put `authorization=Basic …` into a file and name it in otlp.headers_file",
        )
    return url


def _is_value(value: str) -> bool:
    """Whether it can be a header's value as it is."""
    return value.isascii() and value.isprintable()


def _is_token(name: str) -> bool:
    """Whether it can be a header's name (RFC 9110, token)."""
    return bool(name) and all(
        char.isascii() and (char.isalnum() or char in "!#$%&'*+-.^_`|~") for char in name
    )
