# SPDX-License-Identifier: Apache-2.0
"""What is secret about a destination, from files or the environment: signing keys, authorization, and the URL
where that is itself a key. None of it shows in a message, repr or log.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

from hotstage.config.notify import Destination
from hotstage.config.source import read_text
from hotstage.errors import ConfigError
from hotstage.notify.signing import Secret, parse_secrets

_SCHEMES = ("bearer ", "basic ")


def destination_url(config: Destination, environment: Mapping[str, str], where: str) -> str:
    """Where it goes. Raises ConfigError that names `where`."""
    if (config.url is None) == (config.url_file is None):
        raise ConfigError(f"{where}: one of url and url_file is needed", remedy="set one of them")
    if config.url_file is None:
        return config.url or ""
    text, origin = _read(config.url_file, environment, where, "url_file")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise ConfigError(f"{origin}: not one line", remedy="write the URL into it, and nothing else")
    return lines[0]


def signing_secrets(config: Destination, environment: Mapping[str, str], where: str) -> tuple[Secret, ...]:
    """The keys that sign what goes to a destination; empty where none is set and none is needed.

    Raises ConfigError that names `where`.
    """
    if config.secret_file is not None:
        text, origin = _read(config.secret_file, environment, where, "secret_file")
        return parse_secrets(text, origin)
    if config.secret_env is not None:
        text = environment.get(config.secret_env, "")
        return parse_secrets(text.replace(" ", "\n"), f"{where}: environment variable {config.secret_env}")
    if config.format == "cloudevents":
        raise ConfigError(f"{where}: no signing secret", remedy="set secret_file or secret_env")
    return ()


def authorization(config: Destination, environment: Mapping[str, str], where: str) -> str | None:
    """The value of the Authorization header, None where no file is set. Raises ConfigError.

    The file's first line is a bearer token, `user:password` (a token has no colon), or a whole value that
    begins with `Bearer` or `Basic`.
    """
    if config.authorization_file is None:
        return None
    text, origin = _read(config.authorization_file, environment, where, "authorization_file")
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    remedy = "write a bearer token, or user:password, into its first line"
    if not line:
        raise ConfigError(f"{origin} is empty", remedy=remedy)
    if line.lower().startswith(_SCHEMES):
        value = line
    elif ":" in line:
        value = "Basic " + base64.b64encode(line.encode()).decode()
    else:
        value = f"Bearer {line}"
    if not (value.isascii() and value.isprintable()) or value.count(" ") != 1:
        raise ConfigError(f"{origin}: not a token", remedy=remedy)
    return value


def _read(name: str, environment: Mapping[str, str], where: str, setting: str) -> tuple[str, str]:
    """(text, what to call its origin). A relative name is a systemd credential, which LoadCredential= puts
    into a directory of its own.
    """
    directory = environment.get("CREDENTIALS_DIRECTORY")
    path = Path(directory or os.curdir) / name
    origin = f"{where}: {path}"
    try:
        return read_text(path), origin
    except ConfigError as error:
        reason = error.message.removeprefix(f"{path}: ")
        remedy = f"check {setting}"
        if directory is None and not Path(name).is_absolute():
            remedy += "; a relative name is a systemd credential: outside its unit set CREDENTIALS_DIRECTORY"
        raise ConfigError(f"{origin}: {reason}", remedy=remedy) from error
