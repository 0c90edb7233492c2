# SPDX-License-Identifier: Apache-2.0
"""Checks of the configuration: whether it is valid, who can read its secrets, where it sends data.

Names are resolved and ports knocked at; no request is made and no secret is shown.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.host import Host
from hotstage.config.load import DEFAULT_FILE
from hotstage.config.render import redacted_url
from hotstage.config.settings import Config
from hotstage.errors import HotstageError
from hotstage.notify.destinations import RefusedAddressError, Target, read_targets, system_resolver

CONFIGURATION = Area.CONFIGURATION
CONNECT_SECONDS = 1.0
OTLP_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_configuration(host: Host) -> Iterator[Finding]:
    """Whether it can be read. The other checks go on with the defaults where it cannot."""
    error = host.config_error
    file = host.config_file or DEFAULT_FILE
    data = {"file": str(file), "exists": file.exists()}
    if error is not None:
        message = error.message if isinstance(error, HotstageError) else str(error)
        remedy = error.remedy if isinstance(error, HotstageError) else None
        yield Finding(
            CONFIGURATION, "configuration", Status.FAIL, f"{message}; the other checks take the defaults",
            remedy or "hotstage config check", data=data,
        )  # fmt: skip
        return
    detail = f"{file} is valid" if data["exists"] else f"no {file}: the defaults are in force"
    yield Finding(CONFIGURATION, "configuration", Status.OK, detail, data=data)


def secret_files(config: Config) -> Iterator[tuple[str, str]]:
    """(key, file) of everything in the configuration that holds a secret."""
    single = {
        "http.token_file": config.http.token_file,
        "http.tls_key_file": config.http.tls_key_file,
        "otlp.headers_file": config.otlp.headers_file,
        "explore.prometheus_token_file": config.explore.prometheus_token_file,
    }
    for destination in config.notify.destinations:
        where = f"notify.destinations {destination.name}"
        single[f"{where}.url_file"] = destination.url_file
        single[f"{where}.secret_file"] = destination.secret_file
        single[f"{where}.authorization_file"] = destination.authorization_file
    single |= {
        f"engines.endpoints {each.name}.token_file": each.token_file for each in config.engines.endpoints
    }
    yield from ((key, file) for key, file in single.items() if file is not None)


def check_permissions(host: Host) -> Iterator[Finding]:
    """Files with secrets that all users of the host may read, or anybody may change."""
    checked = 0
    for key, name in secret_files(host.config):
        file = Path(host.environment.get("CREDENTIALS_DIRECTORY", os.curdir)) / name
        try:
            mode = file.stat().st_mode
        except OSError as error:
            denied = error.errno == 13
            yield Finding(
                CONFIGURATION, key, Status.UNKNOWN if denied else Status.WARN, f"{file}: {error.strerror}",
                "check its path and owner", data={"file": str(file), "mode": None},
            )  # fmt: skip
            continue
        checked += 1
        if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
            who = "every user may read it" if mode & stat.S_IROTH else "others may change it"
            yield Finding(
                CONFIGURATION, key, Status.WARN,
                f"{file} holds a secret and has mode {mode & 0o777:04o}: {who}",
                f"chmod 0640 {file}", data={"file": str(file), "mode": f"{mode & 0o777:04o}"},
            )  # fmt: skip
    main = host.config_file or DEFAULT_FILE
    yield from _changeable(main)
    yield from _shown_urls(host.config, main)
    if checked:
        yield Finding(
            CONFIGURATION, "secrets", Status.OK, f"{plural(checked, 'file')} with secrets looked at",
            data={"files": checked},
        )  # fmt: skip


def _changeable(file: Path) -> Iterator[Finding]:
    """Whoever can write the configuration decides what a privileged process does."""
    for place in (file, file.parent):
        try:
            mode = place.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield Finding(
                CONFIGURATION, "configuration file", Status.WARN,
                f"{place} has mode {mode & 0o777:04o}: any user can change what the agent does",
                f"chmod o-w {place}", data={"file": str(place), "mode": f"{mode & 0o777:04o}"},
            )  # fmt: skip


def _shown_urls(config: Config, file: Path) -> Iterator[Finding]:
    """A chat's webhook URL is its own key."""
    keyed = [each.name for each in config.notify.destinations if each.format == "slack" and each.url]
    try:
        is_shown = bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:
        return
    if keyed and is_shown:
        yield Finding(
            CONFIGURATION, "configuration file", Status.WARN,
            f"{file} holds webhook URLs that are keys ({', '.join(keyed)}), and every user may read it",
            f"chmod 0640 {file}, or url_file", data={"file": str(file), "destinations": keyed},
        )  # fmt: skip


def check_destinations(host: Host) -> Iterator[Finding]:
    """Webhook destinations: allowed, and their names resolved. Nothing is sent."""
    if not host.config.notify.destinations:
        yield Finding(
            CONFIGURATION, "webhooks", Status.ABSENT, "no destination is configured", data={"destinations": 0}
        )
        return
    targets, refused = read_targets(host.config.notify.destinations, host.environment)
    for each in refused:
        yield Finding(
            CONFIGURATION, f"webhook {each.name}", Status.WARN, f"{each.shown_url} is refused: {each.reason}",
            each.remedy, features=("webhooks",), data={"url": each.shown_url, "refused": each.reason},
        )  # fmt: skip
    for target in targets:
        yield _destination(target)


def _destination(target: Target) -> Finding:
    name, data = f"webhook {target.name}", {"url": target.shown_url, "format": target.format}
    try:
        address = target.resolve(system_resolver)
    except RefusedAddressError as error:
        return Finding(
            CONFIGURATION, name, Status.WARN, f"{target.shown_url} is refused: {error}", error.remedy,
            features=("webhooks",), data=data,
        )  # fmt: skip
    except OSError as error:
        return Finding(
            CONFIGURATION, name, Status.WARN, f"{target.host} cannot be resolved: {error.strerror or error}",
            "check the name and the resolver", features=("webhooks",), data=data,
        )  # fmt: skip
    detail = f"{target.shown_url} as {target.format}: {target.host} is {address}, which is allowed; not tried"
    return Finding(CONFIGURATION, name, Status.OK, detail, data=data)


def check_collectors(host: Host) -> Iterator[Finding]:
    """Where metrics and spans go, and where the explorer reads: whether something listens."""
    endpoint = host.config.otlp.endpoint or host.environment.get(OTLP_VARIABLE)
    yield _peer("OTLP", endpoint, "metrics and spans")
    yield _peer("Prometheus", host.config.explore.prometheus, "the explorer's data")


def _peer(name: str, url: str | None, what: str) -> Finding:
    if url is None:
        return Finding(CONFIGURATION, name, Status.ABSENT, f"not configured for {what}", data={"url": None})
    shown = redacted_url(url)
    data = {"url": shown}
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except (KeyError, ValueError):
        return Finding(
            CONFIGURATION, name, Status.WARN, f"{shown} is not an http(s) URL", "http://host:port", data=data
        )
    except OSError as error:
        reason = "no answer within 1 s" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        return Finding(
            CONFIGURATION, name, Status.WARN, f"{shown} is not reachable for {what}: {reason}",
            "start it, or mend the URL; check the firewall", features=(what,), data=data,
        )  # fmt: skip
    return Finding(CONFIGURATION, name, Status.OK, f"{shown}: something listens", data=data)
