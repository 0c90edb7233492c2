# SPDX-License-Identifier: Apache-2.0
"""What the runtime tells beside its counts: where copies go, devices, kernels by name, launches by work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import Probes, Workload
from tests.bpf.test_layers import attach, build_layers

from hotstage.probes.catalogue.spec import Layer

MALLOC, LAUNCH, COPY_ASYNC, DRIVER_COPY_ASYNC = 200, 192, 225, 47
COPIES = {225: 1, 224: 2, 226: 7, 242: 9, 228: 15}
"""Call → bytes for each byte of `layers.c`'s copies: asynchronous, plain, 2D, of arrays, 3D."""
KINDS = range(5)
"""cudaMemcpyKind: host to host, to device, to host, on the device, by the addresses."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_layers(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def alone(probes: Probes, built: Path) -> Iterator[Probes]:
    """The runtime is attached, its driver is not."""
    with ExitStack() as stack:
        attach(probes, built, stack, "runtime")
        yield probes


@pytest.fixture
def target(built: Path) -> Iterator[Workload]:
    workload = Workload(built / "layers")
    yield workload
    workload.close()


def sums(probes: Probes, pid: int, call: int) -> dict[int, tuple[int, int]]:
    """Direction → (calls, bytes)."""
    keys, stats = probes.rows(pid, call)
    return {
        int(key["direction"]): (int(stat["count"]), int(stat["bytes"]))
        for key, stat in zip(keys, stats, strict=True)
    }


def test_copies_are_told_by_direction(alone: Probes, target: Workload) -> None:
    for kind in KINDS:
        target.do("copyalone", 3 + kind, kind, 100 + kind)
    for call, factor in COPIES.items():
        expected = {(kind + 1) % 5: (3 + kind, (3 + kind) * (100 + kind) * factor) for kind in KINDS}
        assert sums(alone, target.pid, call) == expected, call


def test_a_device_is_known_by_its_properties_and_a_threads_by_what_it_set(
    alone: Probes, target: Workload
) -> None:
    target.do("device", 2, 3, 0)
    assert alone.maps.device_uuids()[target.pid, 3] == bytes(range(0x30, 0x40))
    keys, stats = alone.rows(target.pid, MALLOC)
    assert {
        int(device): int(count) for device, count in zip(keys["device"], stats["count"], strict=True)
    } == {3: 2}
    target.do("device", 1, 9, 0)  # refused: the thread stays where it was
    assert alone.rows(target.pid, MALLOC, device=3)[1]["count"].sum() == 3


def test_launches_are_counted_by_their_work(alone: Probes, target: Workload) -> None:
    target.do("copyalone", 1, 1, 100)
    for launches in (40, 33):
        target.do("kernel", launches, 0, 8)
        target.do("sync", 1, 1, 0)
    (thread,) = alone.threads(target.pid)
    assert (thread["launch_total"], thread["runtime_launches"], thread["unattributed_total"]) == (73, 73, 73)
    (burst,), _ = alone.maps.bursts.since(target.pid, target.pid, 0)
    # log2 of 8 blocks, in eighths, over the first 32 launches
    assert (int(burst["launches"]), int(burst["head_eighths"])) == (40, 32 * 3 * 8)
    assert int(burst["input_bytes"]) == 100 * sum(COPIES.values())


def test_kernels_are_named_by_registration_by_look_up_or_by_address(alone: Probes, target: Workload) -> None:
    alone.maps.names.prepare(launch_gap=1, takes_stacks=False)
    try:
        target.do("handles", 5, 0, 0)
        keys, states = alone.maps.names.kernels()
        mine = keys["tgid"] == target.pid
        found = {
            (bytes(state["name"]).split(b"\0")[0], int(state["source"])): int(state["samples"])
            for state in states[mine]
            if state["samples"]
        }
        assert found == {(b"_Z9registeredPf", 1): 5, (b"of_library", 0): 5, (b"", 2): 5}
    finally:
        alone.maps.names.prepare(launch_gap=16, takes_stacks=True)


def test_a_copy_of_the_driver_goes_where_the_runtime_around_it_says(probes: Probes, tmp_path: Path) -> None:
    with ExitStack() as stack:
        attach(probes, build_layers(tmp_path), stack, "runtime", "driver")
        target = Workload(tmp_path / "layers")
        stack.callback(target.close)
        for kind in KINDS:
            target.do("copy", 2 + kind, kind, 50 + kind)
        target.do("drivercopy", 7, 64, 0)
        expected = {(kind + 1) % 5: (2 + kind, (2 + kind) * (50 + kind)) for kind in KINDS}
        calls, copied = expected[0]
        expected[0] = (calls + 7, copied + 7 * 64)
        assert sums(probes, target.pid, DRIVER_COPY_ASYNC) == expected
        assert sums(probes, target.pid, COPY_ASYNC) == {}
        keys, _ = probes.rows(target.pid, DRIVER_COPY_ASYNC)
        assert set(keys["layer"]) == {Layer.DRIVER}
