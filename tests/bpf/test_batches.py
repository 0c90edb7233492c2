# SPDX-License-Identifier: Apache-2.0
"""A continuous batch is told once, and its work is split among its members by tokens, exactly as stated."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from tests.bpf.conftest import Probes
from tests.bpf.request_server import FIRST, Server

from hotstage.probes.loader.base import MapSizes
from hotstage.probes.samples import FastSample
from hotstage.stages.shares import BatchShares

LAUNCHES, BYTES = 1000, 1000
StartServer = Callable[[Probes], Server]


def look(probes: Probes, shares: BatchShares) -> FastSample:
    return shares.apply(probes.maps.read_fast(time.monotonic_ns()))


def launches_of(sample: FastSample, pid: int) -> dict[int, float]:
    rows = sample.requests[sample.requests["tgid"] == pid]
    return dict(zip((rows["request_hash"] - FIRST).tolist(), rows["launches"].tolist(), strict=True))


@pytest.mark.parametrize("members", [1, 7, 64, 65, 200])
def test_launches_are_split_by_tokens(probes: Probes, start: StartServer, members: int) -> None:
    server, shares = start(probes), BatchShares()
    look(probes, shares)
    for number in range(members):
        server.do("begin", number)
    server.do("batch", 9, members, LAUNCHES)
    total = members * (members + 1) / 2
    stated = {number: LAUNCHES * (number + 1) / total for number in range(members)}
    for _ in range(3):  # the share stays, and is not given twice
        sample = look(probes, shares)
        assert launches_of(sample, server.pid) == pytest.approx(stated, rel=1e-9)
    rows = sample.requests[sample.requests["tgid"] == server.pid]
    assert rows["launches"].sum() == pytest.approx(LAUNCHES)
    assert rows["bytes"].sum() == pytest.approx(BYTES)
    server.do("batch", 10, members, LAUNCHES)
    twice = {number: 2 * share for number, share in stated.items()}
    sample = look(probes, shares)
    assert launches_of(sample, server.pid) == pytest.approx(twice)
    assert len(sample.shares) == members
    assert set(sample.shares["stage"].tolist()) <= {12, 13}
    for number in range(members):
        server.do("end", number, 0, 0)
    finished = look(probes, shares).finished
    own = finished[finished["tgid"] == server.pid]
    assert own["launches"].sum() == pytest.approx(2 * LAUNCHES)


def test_the_threads_calls_count_for_the_batchs_stage_and_no_longer(
    probes: Probes, start: StartServer
) -> None:
    server = start(probes)
    server.do("begin", 0)
    server.do("batch", 9, 1, 50)
    server.do("launch", 4)
    assert probes.count(server.pid, 1, stage=13) == 50
    assert probes.count(server.pid, 1, stage=255) == 4
    (thread,) = probes.threads(server.pid)
    assert (thread["stage"], thread["in_batch"]) == (255, 0)
    server.do("end", 0, 0, 0)


def test_what_is_done_by_name_within_a_batch_is_not_the_batchs(probes: Probes, start: StartServer) -> None:
    server, shares = start(probes), BatchShares()
    look(probes, shares)
    for number in (0, 1):
        server.do("begin", number)
    server.do("nested", 9)
    assert launches_of(look(probes, shares), server.pid) == pytest.approx({0: 2.0, 1: 71.0})
    for number in (0, 1):
        server.do("end", number, 0, 0)


def test_a_batch_is_never_worth_more_than_its_work_whatever_is_said(
    probes: Probes, start: StartServer
) -> None:
    server, shares = start(probes), BatchShares()
    look(probes, shares)
    before = probes.losses()
    server.do("begin", 0)
    server.do("lie", 9, 5, 65535)
    losses = {name: count - before.get(name, 0) for name, count in probes.losses().items()}
    # An end at an address that is none, and one of another batch, belong to no batch that was begun.
    assert {name: count for name, count in losses.items() if count} == {
        "unreadable_arguments": 1,
        "unmatched_batches": 2,
    }
    sample = look(probes, shares)
    assert launches_of(sample, server.pid) == pytest.approx({0: 10.0})
    # The record says another stage than the batch was begun with: what was counted decides.
    assert set(sample.shares["batch_stage"].tolist()) == {13}
    server.do("end", 0, 0, 0)


def test_members_that_are_no_requests_are_counted(probes: Probes, start: StartServer) -> None:
    server, shares = start(probes), BatchShares()
    look(probes, shares)
    server.do("begin", 0)
    server.do("batch", 9, 3, 60)
    first = look(probes, shares)
    assert launches_of(first, server.pid) == pytest.approx({0: 10.0})
    assert first.losses["unclaimed_batch_shares"] == 0  # they may yet be seen
    assert look(probes, shares).losses["unclaimed_batch_shares"] == 2
    server.do("end", 0, 0, 0)


def test_batches_beyond_the_map_are_counted(
    start_small: Callable[[MapSizes], Probes], start: StartServer
) -> None:
    probes = start_small(MapSizes(by_name={"batches": 1}))
    one, two = start(probes), start(probes)
    one.do("begin", 0)
    for server in (one, two):
        server.do("batch", 9, 1, 5)
    assert probes.losses() == {"lost_batches": 1, "unmatched_batches": 1}
    assert np.array_equal(probes.maps.read_fast(0).batches["work"]["launches"], [5])
