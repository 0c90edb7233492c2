# SPDX-License-Identifier: Apache-2.0
"""A probe behind the first instruction is tried in one process before everybody gets it, and believed only
when each call was counted with the arguments and the result that the caller knows of.

The programs and their map are `bpf/canary.bpf.c`, loaded at the first trial. It chooses no function.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from hotstage.errors import HotstageError
from hotstage.probes import bpf
from hotstage.probes.loader.base import Rung
from hotstage.probes.loader.libbpf_object import Libbpf, LibbpfObject
from hotstage.probes.trial.process import Subject, SubjectCrashedError, TrialError
from hotstage.probes.trial.subject import MARKED_ARGUMENTS

CALLS = 11
"""Calls under the probe; a prime, so that a call counted twice or lost shows."""
_CALLS_BEFORE = 3
_SEEN = struct.Struct("<QQ6QQ")  # struct canary_seen
_KEY = bytes(4)


class RefutedError(Exception):
    """The probe changed something; the message says what."""


class Canary:
    """The trial's programs in the kernel; one trial at a time."""

    def __init__(self, objects: Path, rung: Rung) -> None:
        self._path = objects / "canary.bpf.o"
        self._is_perf = rung is Rung.PERF
        self._lock = threading.Lock()
        self._object: LibbpfObject | None = None

    def try_function(self, subject: Subject, library_fd: int, symbol: str, offset: int) -> int:
        """Probe `offset` in the subject's process alone and have it call `symbol`; how many calls were right.

        Raises RefutedError, or TrialError when nothing can be said.
        """
        before = subject.call(symbol, _CALLS_BEFORE)
        with self._lock:
            programs = self._loaded()
            bpf.update(programs.map_fd("canary_seen"), _KEY, bytes(_SEEN.size))
            with self._probed(programs, library_fd, offset, subject.pid):
                try:
                    during = subject.call(symbol, CALLS)
                except SubjectCrashedError as error:
                    raise RefutedError(f"{symbol} under a probe: {error}") from error
            raw = bpf.lookup(programs.map_fd("canary_seen"), _KEY, _SEEN.size)
        assert raw is not None  # an array has all its entries
        _compare(symbol, before[:2], during, raw)
        return CALLS

    def close(self) -> None:
        """Let the programs go."""
        with self._lock:
            if self._object is not None:
                self._object.close()
            self._object = None

    def _loaded(self) -> LibbpfObject:
        if self._object is None:
            attach_type = 0 if self._is_perf else bpf.ATTACH_UPROBE_MULTI
            try:
                self._object = Libbpf().load(
                    self._path, {"canary_enter": attach_type, "canary_exit": attach_type}
                )
            except (HotstageError, OSError) as error:
                raise TrialError(f"its programs cannot be loaded: {error}") from error
        return self._object

    @contextlib.contextmanager
    def _probed(self, programs: LibbpfObject, library_fd: int, offset: int, pid: int) -> Iterator[None]:
        path, links = f"/proc/self/fd/{library_fd}", list[int]()
        try:
            for name, on_return in (("canary_exit", True), ("canary_enter", False)):
                links.append(self._link(programs.program_fd(name), path, offset, pid, on_return=on_return))
            yield
        except OSError as error:
            raise TrialError(f"the kernel does not take the probe: {error.strerror}") from error
        finally:
            _let_go(links)

    def _link(self, program: int, path: str, offset: int, pid: int, *, on_return: bool) -> int:
        if self._is_perf:
            return bpf.link_perf_event(program, path, offset, 0, on_return=on_return, pid=pid)
        return bpf.link_multi(
            program, bpf.ATTACH_UPROBE_MULTI, path, [(offset, 0, 0)], on_return=on_return, pid=pid
        )


def _let_go(links: list[int]) -> None:
    """The entry first, beside the trial: the kernel takes 0.05 s for each, and longer for perf events."""

    def close() -> None:
        while links:
            os.close(links.pop())

    threading.Thread(target=close, name="hotstage-canary", daemon=True).start()


def _compare(
    symbol: str,
    before: tuple[list[int], int],
    during: tuple[list[int], int, int],
    raw: bytes,
) -> None:
    entered, returned, *arguments, result = _SEEN.unpack(raw)
    results, value, pointer = during
    if (results, value) != before:
        raise RefutedError(
            f"{symbol} returned {_shown(results)} under a probe and {_shown(before[0])} without"
        )
    if (entered, returned) != (CALLS, CALLS):
        raise RefutedError(f"{CALLS} calls of {symbol} were counted as {entered} entries, {returned} returns")
    if arguments != [pointer, *MARKED_ARGUMENTS]:
        raise RefutedError(f"a probe of {symbol} does not see the arguments that were passed")
    if [result & 0xFFFFFFFF] != results:
        raise RefutedError(f"a probe of {symbol} does not see the result that was returned")


def _shown(results: list[int]) -> str:
    """One number at most: a library that chooses its results says nothing by them."""
    return str(results) if len(results) == 1 else f"{len(results)} different results"
