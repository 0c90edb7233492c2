# SPDX-License-Identifier: Apache-2.0
"""Which kernel is a host function? By its symbol in the file that it lies in, where nothing said so before.

The runtime is given the address of a function of the program's own, which is called as its kernel is. A
program tells the runtime all of them at its load; what was loaded before the attach is looked up here, once
for each function that is launched, beside everybody and with a deadline.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from hotstage.errors import HotstageError
from hotstage.grouping import distinct
from hotstage.probes.discovery.elf import ElfError, read_layout
from hotstage.probes.discovery.elf_symbols import functions_at
from hotstage.probes.discovery.libraries import open_mapped
from hotstage.probes.discovery.lookups import Lookups
from hotstage.probes.discovery.processes import Mapping, ProcessTable
from hotstage.probes.maps.inference import InferenceMaps
from hotstage.probes.maps.names import NamesMaps
from hotstage.text import plain_line

LOOKED_AT = 64
"""Processes that are looked at in one round."""
PERIOD_SECONDS = 1.0
_PATH_LIMIT = 200
_STUB = re.compile(rb"([0-9]+)__device_stub__")
"""clang's host functions: the kernel's name with this in front of it."""

log = logging.getLogger(__name__)


class HostFunctions:
    """A thread of its own. `start` once the programs are loaded, `close` before their maps go."""

    def __init__(self, proc_root: Path, deadline_seconds: float, now_ns: Callable[[], int]) -> None:
        self._processes = ProcessTable(proc_root)
        self._deadline_seconds = deadline_seconds
        self._now_ns = now_ns
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiting: dict[int, list[int]] = {}

    def start(self, names: NamesMaps, functions: InferenceMaps) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(names, functions), name="host-functions", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Safe to call twice, or without `start`."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self, names: NamesMaps, functions: InferenceMaps) -> None:
        lookups = Lookups(self._deadline_seconds, self._now_ns)
        try:
            while not self._stop.wait(PERIOD_SECONDS):
                self._round(lookups, names, functions)
        except OSError as error:  # the rest of the agent goes on without these names
            log.warning("no more names of host functions", extra={"reason": str(error)})
        finally:
            lookups.close()

    def _round(self, lookups: Lookups, names: NamesMaps, functions: InferenceMaps) -> None:
        for outcome in lookups.finished():
            pid: int = outcome.key  # type: ignore[assignment]
            found = outcome.result if outcome.error is None else {}
            for address in self._waiting.pop(pid):
                name = found.get(address, b"")
                if name:
                    name_hash = names.keep_symbol(pid, address, name)
                    functions.name_host_function(pid, address, name_hash, name)
        unnamed = names.take_unnamed(LOOKED_AT)
        for pid in distinct(unnamed["tgid"]).tolist():
            if pid in self._waiting:
                continue  # the next look takes up what its launches ask for meanwhile
            addresses = unnamed["name_hash"][unnamed["tgid"] == pid].tolist()
            names.drop_unnamed(pid, addresses)
            self._waiting[pid] = addresses
            lookups.submit(pid, pid, self._look_up(pid, addresses))

    def _look_up(self, pid: int, addresses: Sequence[int]) -> Callable[[], dict[int, bytes]]:
        return lambda: host_names(self._processes, pid, addresses)


def host_names(processes: ProcessTable, pid: int, addresses: Sequence[int]) -> dict[int, bytes]:
    """Address of a function in the process → its kernel's name, mangled; without those that begin nowhere."""
    view = processes.look(pid, lambda path: True)
    if view is None:
        return {}
    found: dict[int, bytes] = {}
    for mapping in view.mappings:
        inside = [address for address in addresses if mapping.start <= address < mapping.end]
        if inside:
            found |= _names_in(processes.root / str(pid), mapping, inside)
    return found


def _names_in(process: Path, mapping: Mapping, addresses: Sequence[int]) -> dict[int, bytes]:
    offsets = {address - mapping.start + mapping.file_offset: address for address in addresses}
    try:
        fd = open_mapped(process, mapping, plain_line(mapping.path, _PATH_LIMIT))
    except (HotstageError, OSError):
        return {}
    try:
        places = functions_at(fd, read_layout(fd), offsets)
    except (ElfError, OSError, ValueError):
        return {}
    finally:
        os.close(fd)
    return {offsets[at]: kernel_name(place.name) for at, place in places.items() if not place.offset}


def kernel_name(symbol: bytes) -> bytes:
    """What the kernel of a host function is called, both as symbols."""
    return _STUB.sub(lambda match: b"%d" % (int(match[1]) - len(b"__device_stub__")), symbol, count=1)
