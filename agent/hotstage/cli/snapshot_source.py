# SPDX-License-Identifier: Apache-2.0
"""A snapshot by name: `now`, a file, or the id of a stored one or of a window. It shows nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hotstage.cli.client import AgentClient
from hotstage.errors import HotstageError
from hotstage.stages.snapshot_types import Snapshot

NOW = "now"
_FILE_LIMIT_BYTES = 256 << 20


def fetch(client: AgentClient, name: str) -> dict[str, Any]:
    """The agent's answer about a snapshot: of now, or the stored one of this id or window."""
    path = "/v1/snapshot" if name == NOW else f"/v1/snapshots/{quote(name, safe='')}"
    answer: dict[str, Any] = client.get(path)
    return answer


def find(client: AgentClient, name: str) -> Snapshot:
    """`now`, then a file of that name, then an id. Raises HotstageError, which says what it tried."""
    if name != NOW and Path(name).is_file():
        return parse(_read(Path(name)), name)
    if os.sep in name:
        raise HotstageError(f"{name}: no such file", remedy="make one with `hotstage snapshot --save FILE`")
    return parse(fetch(client, name), name)


def parse(body: Any, name: str) -> Snapshot:
    """An answer of the API, or what `--save` wrote, as a snapshot."""
    inner = body.get("snapshot", body) if isinstance(body, dict) else body
    try:
        return msgspec.convert(inner, Snapshot)
    except msgspec.ValidationError as error:
        raise HotstageError(
            f"{name} is not a snapshot that this version reads: {error}",
            remedy="make one with `hotstage snapshot --save FILE`",
        ) from error


def save(body: dict[str, Any], file: Path) -> None:
    """Write an answer as JSON; a file of that name is replaced as a whole or not at all."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(body), indent=1))
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise HotstageError(
            f"cannot write {file}: {error.strerror}", remedy="name a file that this user may write"
        ) from error


def _read(file: Path) -> Any:
    try:
        if file.stat().st_size > _FILE_LIMIT_BYTES:
            raise HotstageError(
                f"{file} is larger than any snapshot", remedy="name what `hotstage snapshot --save` wrote"
            )
        return msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise HotstageError(
            f"cannot read {file}: {error.strerror}", remedy="name a file that this user may read"
        ) from error
    except msgspec.DecodeError as error:
        raise HotstageError(
            f"{file} is not JSON: {error}", remedy="make one with `hotstage snapshot --save FILE`"
        ) from error
