# SPDX-License-Identifier: Apache-2.0
"""Series by kernel: all launches once, nothing ever falls, names change places slowly."""

from __future__ import annotations

import numpy as np

from hotstage.probes.kernel_series import KernelSeries
from hotstage.probes.maps.names import GRAPHS, KERNEL_KEY_DTYPE, KERNEL_STATE_DTYPE, NO_KERNEL

SECOND = 1_000_000_000


class Host:
    """Processes that launch; `look` is a step that checks what must hold at each."""

    def __init__(self, limit: int, gap: int = 1) -> None:
        self.series = KernelSeries(limit)
        self.gap = gap
        self.at_ns = SECOND
        self.total = 0
        self.launches: dict[int, int] = {}
        self.samples: dict[tuple[int, int], int] = {}
        self.names: dict[int, bytes] = {NO_KERNEL: b"", GRAPHS: b""}
        self.before: dict[str, int] = {}

    def launch(self, pid: int, name: bytes | int, count: int) -> None:
        name_hash = name if isinstance(name, int) else 1000 + sum(name)
        if isinstance(name, bytes):
            self.names[name_hash] = name
        self.total += count
        self.launches[pid] = self.launches.get(pid, 0) + count
        if count >= self.gap:
            key = pid, name_hash
            self.samples[key] = self.samples.get(key, 0) + count // self.gap

    def end(self, pid: int) -> None:
        self.launches.pop(pid)
        self.samples = {key: count for key, count in self.samples.items() if key[0] != pid}

    def look(self, seconds: float = 1) -> dict[str, int]:
        self.at_ns += int(seconds * SECOND)
        keys = np.zeros(len(self.samples), KERNEL_KEY_DTYPE)
        states = np.zeros(len(self.samples), KERNEL_STATE_DTYPE)
        for row, ((pid, name_hash), count) in enumerate(self.samples.items()):
            keys[row] = name_hash, pid, 0
            states["samples"][row], states["name"][row] = count, self.names[name_hash]
        found = dict(self.series.step(self.at_ns, self.total, self.launches, keys, states))
        assert all(found[name] >= count for name, count in self.before.items() if name in found)
        self.before |= found
        assert sum(self.before.values()) <= self.total
        return found


def test_every_launch_is_in_one_series() -> None:
    host = Host(limit=2)
    host.launch(1, b"gemm", 300)
    host.launch(2, b"gemm", 100)
    host.launch(1, b"norm", 200)
    host.launch(1, b"copy", 50)
    host.launch(2, GRAPHS, 7)
    host.launch(2, NO_KERNEL, 5)
    found = host.look()
    assert found == {"gemm": 400, "norm": 200, "(graphs)": 7, "(unnamed)": 5, "other": 50}
    assert sum(found.values()) == host.total


def test_a_name_that_loses_its_place_takes_nothing_from_the_rest() -> None:
    host = Host(limit=1)
    host.launch(1, b"old", 1000)
    assert host.look() == {"old": 1000}
    shown = set()
    for _ in range(40):
        host.launch(1, b"new", 1000)
        shown |= set(host.look(10))
    assert {"old", "new", "other"} == shown
    found = host.look()
    assert "old" not in found and found["other"] + found["new"] + 1000 == host.total
    for _ in range(60):
        host.launch(1, b"old", 10_000)
        found = host.look(10)
    assert found["old"] > 1000  # it goes on from where it was


def test_names_that_are_launched_alike_do_not_take_turns() -> None:
    host = Host(limit=1)
    shown = []
    for at in range(60):
        host.launch(1, b"this" if at % 2 else b"that", 100)
        shown.append(next(name for name in host.look() if name != "other"))
    assert len(set(shown)) == 1


def test_what_was_not_sampled_yet_waits_and_what_ended_is_the_rest() -> None:
    host = Host(limit=4, gap=16)
    host.launch(1, b"gemm", 160)
    assert host.look() == {"gemm": 160}
    host.launch(1, b"gemm", 3)
    host.launch(2, b"rare", 2)
    assert host.look() == {"gemm": 160}
    host.launch(1, b"gemm", 16)
    assert host.look() == {"gemm": 179}
    host.end(2)
    assert host.look() == {"gemm": 179, "other": 2}
    host.launch(2, b"gemm", 32)  # its id again
    assert host.look() == {"gemm": 211, "other": 2}


def test_no_name_is_taken_for_what_stands_beside_the_names() -> None:
    host = Host(limit=8)
    for name in (b"other", b"(graphs)", b"(unnamed)", b"x\x00y\n\xff{}" + b"z" * 200):
        host.launch(1, name, 10)
    found = host.look()
    assert {"other?", "(graphs)?", "(unnamed)?"} < set(found) and len(found) == 4
    assert all(len(name) <= 121 and name.isprintable() for name in found)
    for number in range(5000):  # makes up a name for each launch
        host.launch(3, b"made_up_%d" % number, 1)
        if not number % 500:
            assert len(host.look()) <= 8 + 1


def test_none_where_none_is_asked_for() -> None:
    host = Host(limit=0)
    host.launch(1, b"gemm", 10)
    assert host.look() == {}
