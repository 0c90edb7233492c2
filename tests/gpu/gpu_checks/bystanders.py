# SPDX-License-Identifier: Apache-2.0
"""Who else comes and goes on the host: pid, parent and name of every process that appears.

Arguments are not read: they may hold secrets.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Any

PERIOD_SECONDS = 0.003
LOOKS = 8
"""A young process is looked at so many times: it may become another program."""


class Bystanders:
    """Looks for new processes in a thread of its own, while the block is open."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[str, Any]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Bystanders:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(5)

    def known(self, pid: int) -> dict[str, Any]:
        """What was seen of a pid; unknown parts are None."""
        unknown = {"pid": pid, "name": None, "program": None, "parent_pid": None, "parent_name": None}
        return self._seen.get(pid) or _look(pid) or unknown

    def _watch(self) -> None:
        alive: set[int] = set()
        while not self._stop.wait(PERIOD_SECONDS):
            now = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
            for pid in now - alive:
                found = _look(pid)
                if found:
                    self._seen[pid] = found
            for pid in now & alive:  # a name changes when a fork becomes another program
                before = self._seen.get(pid)
                if before is not None and before["looks"] < LOOKS:
                    self._seen[pid] = {**(_look(pid) or before), "looks": before["looks"] + 1}
            alive = now


def _look(pid: int) -> dict[str, Any] | None:
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_text(errors="replace")
        parent = int(stat.rpartition(")")[2].split()[1])
        try:
            program: str | None = str((folder / "exe").readlink())
        except OSError:
            program = None
        return {
            "pid": pid,
            "name": stat[stat.index("(") + 1 : stat.rindex(")")],
            "program": program,
            "parent_pid": parent,
            "parent_name": _name(parent),
            "looks": 1,
        }
    except (OSError, ValueError):
        return None


def _name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None
