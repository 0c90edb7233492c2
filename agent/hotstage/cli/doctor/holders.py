# SPDX-License-Identifier: Apache-2.0
"""Who holds a TCP port or BPF links, by the descriptors that this user may see; for people only."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hotstage.cli.doctor.host import Host
from hotstage.probes.discovery.processes import ProcessTable, printable
from hotstage.probes.loader.keeping import THREAD_NAME

_LISTEN = "0A"
_FDS_MAX = 4096
_TASKS_MAX = 4096
_WORDS_MAX = 6
_LINKS = ("anon_inode:bpf_link", "anon_inode:bpf-link")


def port_holder(host: Host, port: int) -> str | None:
    """`PID NAME: COMMAND LINE` of who listens on a TCP port; None when this user cannot tell."""
    sockets: set[str] = set()
    for place in ("proc/net/tcp", "proc/net/tcp6"):
        for line in (host.text(place) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    return next(_holding(host, sockets.__contains__), None) if sockets else None


def link_holders(host: Host) -> list[str]:
    """Processes that hold BPF links, as far as this user may see."""
    return list(_holding(host, _LINKS.__contains__, _link_threads))


def _holding(
    host: Host,
    is_wanted: Callable[[str], bool],
    tables: Callable[[Path], Iterable[Path]] = lambda _process: (),
) -> Iterator[str]:
    table = ProcessTable(host.proc)
    for pid in table.pids():
        process = host.proc / str(pid)
        if pid == os.getpid():
            continue
        if any(is_wanted(held) for place in (process, *tables(process)) for held in descriptors(place)):
            yield f"{pid} {table.name(pid)}: {_command(process)}"


def _link_threads(process: Path) -> list[Path]:
    """Threads of an agent that hold links in tables of their own."""
    found = []
    try:
        for task in sorted((process / "task").iterdir())[:_TASKS_MAX]:
            if (task / "comm").read_text(errors="replace").strip() == THREAD_NAME:
                found.append(task)
    except OSError:  # it ends, or may not be seen
        pass
    return found


def descriptors(process: Path) -> Iterator[str]:
    """What the descriptors of a process point to; nothing where they may not be seen."""
    try:
        entries = list(os.scandir(process / "fd"))[:_FDS_MAX]
    except OSError:
        return
    for entry in entries:
        try:
            yield os.fspath(Path(entry.path).readlink())
        except OSError:
            continue


def _command(process: Path) -> str:
    """The first words of a command line, without the values of options: they may be a stranger's secret."""
    try:
        words = (process / "cmdline").read_bytes()[:4096].split(b"\0")
    except OSError:
        return ""
    shown: list[str] = []
    for word in (word.decode("utf-8", "replace") for word in words[:_WORDS_MAX] if word):
        is_value = bool(shown) and shown[-1].startswith("--") and not word.startswith("-")
        shown.append("…" if is_value else re.sub(r"(^-[^=]*=).*", r"\1…", word))
    return printable(" ".join(shown), 120)
