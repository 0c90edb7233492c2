# SPDX-License-Identifier: Apache-2.0
"""What a process and its threads are called, from an injected `/proc`: what rules match, who a program is.

Read when a process or thread appears and again after a while, because both may change their names; never per
event. Whatever cannot be read is empty. All of it comes from strangers: cut, never trusted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hotstage.host.containers import container_of
from hotstage.probes.discovery.processes import ProcessId, ProcessTable, printable
from hotstage.small_files import read_small

REREAD_NS = 5_000_000_000
"""How old a name may be."""
LIBRARIES_NS = 30_000_000_000
COMMAND_BYTES = 4096
LIBRARIES_LIMIT = 1024
PROCESSES_LIMIT = 4096
_DIGITS = re.compile(r"\d+")
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*$")
_WITH_VALUE = frozenset({"-W", "-X"})


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One life of a process. `program` is the same for each start of it, whatever its options and numbers."""

    identity: ProcessId
    command: str = ""
    container: str | None = None
    cgroup: str = ""
    libraries: tuple[str, ...] = ()
    """File names of the code that it has mapped; empty where no rule asks for them."""
    program: str = ""
    uid: int | None = None
    """Whose it is (its real user id); None where the kernel did not say."""

    @property
    def program_key(self) -> str:
        """The program's name in files: 16 hexadecimal digits. The same program of another user is another
        one: nobody teaches the agent what the functions of someone else's processes do.
        """
        return hashlib.blake2b(f"{self.uid} {self.program}".encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class _Seen:
    facts: ProcessFacts
    read_ns: int
    libraries_ns: int
    threads: dict[int, str] = field(default_factory=dict)


class FactsBook:
    """Facts by pid, at most REREAD_NS old. Not thread-safe: one thread asks."""

    def __init__(self, table: ProcessTable, *, with_libraries: bool) -> None:
        self._table = table
        self.with_libraries = with_libraries
        """Whether libraries are read: as soon as a rule asks for one."""
        self._seen: dict[int, _Seen] = {}

    def process(self, pid: int, now_ns: int) -> ProcessFacts | None:
        """None when it is gone, or a stranger has the pid by now and has not been looked at."""
        seen = self._seen.get(pid)
        if seen is not None and now_ns - seen.read_ns < REREAD_NS:
            return seen.facts
        identity = self._table.identity(pid)
        if identity is None:
            self._seen.pop(pid, None)
            return None
        if seen is None or seen.facts.identity != identity:
            if len(self._seen) >= PROCESSES_LIMIT:
                return None
            seen = self._seen[pid] = _Seen(ProcessFacts(identity), now_ns, now_ns - LIBRARIES_NS)
        libraries = seen.facts.libraries
        if self.with_libraries and now_ns - seen.libraries_ns >= LIBRARIES_NS:
            libraries, seen.libraries_ns = self._libraries(pid), now_ns
        seen.facts, seen.read_ns = self._read(identity, libraries), now_ns
        seen.threads.clear()
        return seen.facts

    def thread(self, pid: int, tid: int) -> str:
        """The thread's name as of the process's last look; empty when it has gone. After `process`."""
        seen = self._seen.get(pid)
        if seen is None:
            return ""
        if tid not in seen.threads:
            seen.threads[tid] = printable(self._text(f"{pid}/task/{tid}/comm").removesuffix("\n"))
        return seen.threads[tid]

    def keep(self, pids: Iterable[int]) -> None:
        """Forget all others."""
        for gone in self._seen.keys() - set(pids):
            del self._seen[gone]

    def _read(self, identity: ProcessId, libraries: tuple[str, ...]) -> ProcessFacts:
        pid = identity.pid
        words = [word for word in self._bytes(f"{pid}/cmdline").split(b"\0") if word]
        command = [printable(word.decode("utf-8", "replace"), COMMAND_BYTES) for word in words]
        cgroup = self._text(f"{pid}/cgroup")
        return ProcessFacts(
            identity=identity,
            command=" ".join(command)[:COMMAND_BYTES],
            container=container_of(cgroup),
            cgroup=next((line.rpartition(":")[2] for line in cgroup.splitlines()), ""),
            libraries=libraries,
            program=program_of(self._executable(pid), command),
            uid=_real_uid(self._text(f"{pid}/status")),
        )

    def _libraries(self, pid: int) -> tuple[str, ...]:
        view = self._table.look(pid, lambda path: True)
        names = () if view is None else (PurePosixPath(each.path).name for each in view.mappings)
        return tuple(dict.fromkeys(names))[:LIBRARIES_LIMIT]

    def _executable(self, pid: int) -> str:
        try:
            name = (self._table.root / str(pid) / "exe").readlink().name
        except OSError:
            return ""
        return printable(name.removesuffix(" (deleted)"))

    def _text(self, path: str) -> str:
        return self._bytes(path).decode("utf-8", "replace")

    def _bytes(self, path: str) -> bytes:
        try:
            return read_small(f"{self._table.root}/{path}", COMMAND_BYTES)
        except OSError:
            return b""


def program_of(executable: str, command: list[str]) -> str:
    """Who a program is: its executable and what that runs (a script, a module, a title), numbers left out.

    `python3.11 -m vllm.entrypoints.openai.api_server --port 8001` → `python#.# vllm.entrypoints.openai…`;
    another port, model or rank is the same program. Empty where neither is known.
    """
    title = PurePosixPath(command[0]).name if command else ""
    runs = _script_of(command) if _INTERPRETER.match(executable) else ""
    if not runs and title != executable and not _INTERPRETER.match(title):
        runs = title
    name = " ".join(part for part in (executable, runs) if part)
    return _DIGITS.sub("#", name)[:128]


def _real_uid(status: str) -> int | None:
    """From `/proc/PID/status`; the directory's owner is no measure, a process can make that root."""
    found = re.search(r"^Uid:\t(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else None


def _script_of(command: list[str]) -> str:
    """The script or module that an interpreter runs; empty where none is named."""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word in _WITH_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return PurePosixPath(word).name
    return ""


def table_of(proc_root: str) -> ProcessTable:
    return ProcessTable(Path(proc_root))
