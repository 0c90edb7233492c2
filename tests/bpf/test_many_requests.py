# SPDX-License-Identifier: Apache-2.0
"""Many requests at once: two hundred interleaved on one thread, and twenty thousand that end in a burst."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.bpf.conftest import DEADLINE_SECONDS, Probes
from tests.bpf.request_server import FIRST, Server

from hotstage.probes.loader.base import MapSizes

CONCURRENT = 200
BURST, THREADS = 20_000, 4
StartServer = Callable[[Probes], Server]


def test_two_hundred_requests_on_one_thread_are_kept_apart(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    before = probes.losses()
    server.do("interleave", CONCURRENT)
    found = server.requests()
    assert found.keys() == set(range(CONCURRENT))
    for number, row in found.items():
        steps = number % 5  # it has gone on to this one
        done = list(range(3, 3 + steps)) + ([7] if steps == 4 else [])
        is_open = [] if steps == 4 else [3 + steps]
        assert row["stage_mask"] == sum(1 << stage for stage in done), number  # type: ignore[index]
        assert row["open_mask"] == sum(1 << stage for stage in is_open), number  # type: ignore[index]
        slots = row["stages"]  # type: ignore[index]
        assert slots["count"].nonzero()[0].tolist() == done
        assert slots["open"].nonzero()[0].tolist() == is_open
        assert set(slots["modality"][done + is_open].tolist()) == {number % 4}
        assert row["launches"] == (number % 7 + 1 if steps == 4 else 0)  # type: ignore[index]
    assert probes.losses() == before
    for number in range(CONCURRENT):
        server.do("end", number, 0, 0)


@pytest.mark.parametrize("ring_bytes", [4 << 20, 256 << 10], ids=["default ring", "small ring"])
def test_of_a_burst_none_ends_uncounted(
    start_small: Callable[[MapSizes], Probes], start: StartServer, ring_bytes: int
) -> None:
    probes = start_small(MapSizes(events_bytes=ring_bytes))
    server = start(probes)
    finished: set[int] = set()
    told = 0
    server.say("burst", BURST, THREADS)
    deadline, looks = time.monotonic() + DEADLINE_SECONDS, 0
    while True:
        made = server.has_answered()  # before the look, so that the last one sees all
        sample = probes.maps.read_fast(time.monotonic_ns())
        own = sample.finished[sample.finished["tgid"] == server.pid]
        finished |= set((own["request_hash"] - FIRST).tolist())
        told, looks = told + len(own), looks + 1
        assert (own["stages"]["count"][:, 12] == 1).all()
        if made:
            break
        assert time.monotonic() < deadline, "the burst is not over"
        time.sleep(0.1)
    losses = probes.losses()
    lost = losses.pop("lost_events_ring", 0)
    print(f"{BURST} requests in {looks} looks: {told} told, {lost} lost and counted")
    assert told == len(finished)
    assert told + lost == BURST
    assert losses == {}
    assert not len(probes.requests(server.pid))
    assert probes.maps.request_counts()[server.pid] == 0
