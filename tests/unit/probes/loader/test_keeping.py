# SPDX-License-Identifier: Apache-2.0
"""A descriptor in a table of its own: out of ours, open until it is let go, and gone with the process."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.probes.loader import keeping
from hotstage.probes.loader.base import Link, PointKind
from hotstage.probes.loader.keeping import THREAD_NAME, KeptDescriptor
from hotstage.probes.loader.links import detach

KILLED = (
    "import os, sys, time; from hotstage.probes.loader.keeping import KeptDescriptor\n"
    "kept = [KeptDescriptor(os.dup(1)) for _ in range(20)]; os.write(1, b'r'); os.close(1); time.sleep(60)"
)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its reading end says whether anybody holds the writing end."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def is_held(reader: int) -> bool:
    return not select.select([reader], [], [], 0)[0]


def link_threads() -> int:
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return names.count(THREAD_NAME)


def test_it_is_held_in_no_table_but_its_own_and_let_go_when_asked(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    kept = KeptDescriptor(writer)
    with pytest.raises(OSError):
        os.fstat(writer)
    (task,) = [
        task
        for task in Path("/proc/self/task").iterdir()
        if (task / "comm").read_text().strip() == THREAD_NAME
    ]
    assert [int(entry.name) for entry in (task / "fd").iterdir()] == [writer]
    assert is_held(reader)
    kept.close()
    assert not is_held(reader) and link_threads() == 0
    kept.close()


def test_a_hundred_come_and_go_while_others_open_close_and_collect(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    ends = threading.Event()
    failures: list[OSError] = []

    class Opened:
        """Closed by the collector, in whichever thread it runs."""

        def __init__(self, fd: int) -> None:
            self.fd, self.itself = fd, self

        def __del__(self) -> None:
            try:
                os.close(self.fd)
            except OSError as error:
                failures.append(error)

    def churn() -> None:
        while not ends.is_set():
            Opened(os.dup(writer))
            time.sleep(0.0005)

    before = gc.get_threshold()
    gc.set_threshold(20)
    others = [threading.Thread(target=churn) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(5):
            kept = [KeptDescriptor(os.dup(writer)) for _ in range(20)]
            assert link_threads() == 20
            for descriptor in kept:
                descriptor.close()
            assert link_threads() == 0
    finally:
        ends.set()
        for other in others:
            other.join(10)
        gc.set_threshold(*before)
    gc.collect()
    assert not failures
    assert is_held(reader)
    os.close(writer)
    assert not is_held(reader)


def test_no_garbage_is_collected_in_a_thread_with_another_table(pipe: tuple[int, int]) -> None:
    _, writer = pipe
    collected_in: set[str] = set()

    def note(_phase: str, _info: object) -> None:
        collected_in.add(Path("/proc/thread-self/comm").read_text().strip())

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        kept = KeptDescriptor(writer)
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    kept.close()
    assert collected_in and THREAD_NAME not in collected_in


def test_what_twenty_threads_hold_is_gone_with_a_killed_process() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"r"
        assert is_held(process.stdout.fileno())
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
        assert process.stdout.read() == b""


def test_a_refusal_leaves_the_descriptor_where_it_was(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(keeping, "_CLOSE_RANGE", -1)
    with pytest.raises(OSError):
        KeptDescriptor(writer)
    monkeypatch.undo()
    monkeypatch.setattr(keeping, "THREADS_LIMIT", 1)
    with pytest.raises(OSError, match="threads"):
        KeptDescriptor(writer)
    assert is_held(reader)
    os.close(writer)
    assert not is_held(reader)


def test_detaching_lets_go_of_kept_descriptors_too(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    link = Link([os.dup(writer)], PointKind.TIMED, (), [KeptDescriptor(writer)])
    assert link.in_kernel == 2
    detach([link])
    assert not is_held(reader) and link.in_kernel == 0
