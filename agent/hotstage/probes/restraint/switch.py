# SPDX-License-Identifier: Apache-2.0
"""The kill switch: a file. While it exists nothing is attached; taking it away attaches again.

The file is the only state, so that a restart finds what was ordered, and so that `touch` and `rm` work where
nothing else does. What it holds, who and why, is for people: it is read bounded and cleaned.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from hotstage.errors import HotstageError
from hotstage.text import plain_line

FILE_NAME = "probes.off"
"""In `[store] directory`."""
_READ_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Switch:
    """Whether the probes are switched off. `since_ns` is wall time, None where the file does not tell."""

    is_off: bool
    actor: str | None = None
    reason: str | None = None
    since_ns: int | None = None

    @property
    def sentence(self) -> str:
        """`switched off by uid 0 (root): a driver update`."""
        who = self.actor or "somebody"
        return f"switched off by {who}: {self.reason or 'no reason given'}"


class SwitchFile:
    """Reads and writes it; every other part only looks at a `Switch`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Switch:
        """Never raises: a file that cannot be read says off all the same, and so does a link to nowhere."""
        try:
            status = self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return Switch(False)
        except OSError as error:
            return Switch(True, None, f"{self.path} cannot be looked at: {error.strerror}")
        said = self._said()
        return Switch(
            True,
            actor=_text(said.get("actor")) or _owner(status.st_uid),
            reason=_text(said.get("reason")) or f"{self.path} exists",
            since_ns=_wall_ns(said.get("since_ns")) or status.st_mtime_ns,
        )

    def off(self, *, actor: str, reason: str, wall_ns: int) -> None:
        """Make the file; one that is there stays as it is. Raises HotstageError."""
        text = json.dumps({"actor": plain_line(actor), "reason": plain_line(reason), "since_ns": wall_ns})
        whole = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            with contextlib.suppress(OSError):  # a full disk takes an empty file, which says off, too
                whole.write_text(text + "\n", encoding="utf-8")
            with contextlib.suppress(FileExistsError):
                self.path.hardlink_to(whole)  # whoever reads it finds all of it
        except OSError as error:
            raise HotstageError(
                f"{self.path}: cannot be made: {error.strerror}", remedy="see [store] directory"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                whole.unlink()

    def on(self) -> None:
        """Take the file away. Raises HotstageError."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise HotstageError(
                f"{self.path}: cannot be taken away: {error.strerror}", remedy="remove it by hand"
            ) from error

    def _said(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            # Whoever made it a FIFO must not hang the agent.
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                found = json.loads(file.read(_READ_BYTES) or b"{}")
            if isinstance(found, dict):
                return found
        return {}


def _text(value: object) -> str | None:
    return plain_line(value) or None if isinstance(value, str) else None


def _wall_ns(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 1 << 63 else None


def _owner(uid: int) -> str:
    """As the API names a peer of its socket."""
    try:
        return f"uid {uid} ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return f"uid {uid}"
