# SPDX-License-Identifier: Apache-2.0
"""Stages that a server makes up: their slots, bits and names; and what a hostile one can do with them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from tests.bpf.conftest import Probes
from tests.bpf.request_server import Server

from hotstage.probes.loader.base import MapSizes
from hotstage.stages.slots import FIRST_OWN, stage_of_slots
from hotstage.stages.tracker import Tracker

OTHER = 17
StartServer = Callable[[Probes], Server]


def own(row: np.void) -> list[int]:
    """Stage ids of the own slots, in the order in which they were claimed."""
    slots = np.arange(FIRST_OWN, FIRST_OWN + 6)
    stages = stage_of_slots(np.full(6, row["own_stages"], np.uint64), slots)
    return [stage for stage in stages.tolist() if stage]


def test_own_stages_take_slots_in_turn_and_their_ids_are_bits(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("begin", 1)
    for stage in (40, 63, 40):
        server.do("span_begin", 1, stage, 5)
        server.do("span_end", 1, stage, 7)
    server.do("stage_begin", 1, 33, 0)
    server.do("launch", 3)
    row = server.requests()[1]
    assert own(row) == [40, 63, 33]
    assert (row["stage_mask"], row["open_mask"]) == (1 << 40 | 1 << 63, 1 << 33)
    slots = row["stages"][FIRST_OWN : FIRST_OWN + 3]
    assert slots["count"].tolist() == [2, 1, 0]
    assert slots["open"].tolist() == [0, 0, 1]
    (thread,) = probes.threads(server.pid)
    assert (thread["stage"], thread["source"]) == (33, 1)
    assert probes.count(server.pid, 1, stage=33) == 3
    server.do("stage_end", 1, 33, 0)
    assert server.requests()[1]["launches"] == 3
    server.do("end", 1, 0, 0)


def test_a_seventh_own_stage_is_counted_and_goes_to_other(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    before = probes.losses().get("lost_own_stages", 0)
    server.do("begin", 1)
    for stage in range(32, 39):
        server.do("span_begin", 1, stage, 0)
    row = server.requests()[1]
    assert own(row) == list(range(32, 38))
    assert row["open_mask"] == sum(1 << stage for stage in range(32, 38)) | 1 << OTHER
    assert probes.losses()["lost_own_stages"] - before == 1
    for stage in range(32, 39):
        server.do("span_end", 1, stage, 0)
    row = server.requests()[1]
    assert (row["open_mask"], row["stages"]["count"].sum()) == (0, 7)
    server.do("end", 1, 0, 0)


def test_an_end_of_an_own_stage_that_never_began_takes_no_slot(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("begin", 1)
    server.do("span_begin", 1, OTHER, 0)
    server.do("span_end", 1, 50, 0)
    row = server.requests()[1]
    assert (own(row), row["open_mask"], row["stage_mask"]) == ([], 1 << OTHER, 0)
    server.do("end", 1, 0, 0)


def test_a_million_names_of_one_process_are_as_many_as_it_has_ids(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    before = probes.losses()
    server.do("names", 1_000_000, 0, 256)  # ids that are none of its own come to nothing
    names = {key[1]: raw for key, raw in probes.maps.stage_names().items() if key[0] == server.pid}
    assert sorted(names) == list(range(32, 64))
    assert names[32] == b"made-up-32"  # the first one holds
    assert probes.losses() == before
    probes.maps.forget_processes([server.pid])
    assert not any(pid == server.pid for pid, _ in probes.maps.stage_names())


def test_names_beyond_the_map_are_counted(
    start_small: Callable[[MapSizes], Probes], start: StartServer
) -> None:
    probes = start_small(MapSizes(by_name={"stage_names": 8}))
    server = start(probes)
    server.do("names", 20, 32, 20)
    assert len(probes.maps.stage_names()) == 8
    assert probes.losses() == {"lost_stage_names": 12}


def test_a_megabyte_where_a_name_is_expected_is_cut_to_what_fits(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("megabyte", 7)
    assert probes.maps.stage_names()[server.pid, 40] == b"x" * 32
    row = server.requests()[7]
    assert (row["id"], row["endpoint"], row["model"]) == (b"x" * 64, b"x" * 48, b"x" * 32)
    server.do("end", 7, 0, 0)


def test_a_span_carries_the_id_and_the_label_of_its_name(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    names = {(server.pid, 41): "rerank"}
    tracker = Tracker(is_alive=lambda pid: True, own_names=lambda: names)
    tracker.advance(probes.maps.read_fast(time.monotonic_ns()))
    server.do("begin", 1)
    for stage in (41, 42):  # 42 has no name
        server.do("span_begin", 1, stage, 0)
        server.do("span_end", 1, stage, 0)
    pulse = tracker.advance(probes.maps.read_fast(time.monotonic_ns()))
    ended = pulse.ended[pulse.ended["pid"] == server.pid]
    assert ended["stage"].tolist() == [41, 42]
    assert [pulse.names.stages[label] for label in ended["label"].tolist()] == ["rerank", "other"]
    server.do("end", 1, 0, 0)


def test_a_process_that_says_every_word_has_no_more_stages_than_there_are(
    probes: Probes, start: StartServer
) -> None:
    server = start(probes)
    before = probes.losses()
    server.do("words")
    keys, stats = probes.rows(server.pid, 1)
    assert {*keys["stage"].tolist()} == {*range(18), *range(32, 64), 255}
    assert {*keys["modality"].tolist()} == set(range(6))
    assert stats["count"].sum() == 65536
    assert (
        stats["count"][(keys["stage"] == OTHER) & (keys["modality"] == 5)].sum() == (65536 / 256 - 50) * 251
    )
    assert probes.losses() == before
    probes.maps.forget_processes([server.pid])


def test_the_65536th_end_leaves_the_modality_alone_and_a_thousand_begins_end(
    probes: Probes, start: StartServer
) -> None:
    server = start(probes)
    server.do("begin", 1)
    server.do("pairs", 1, 1 << 8 | 8, 65537)
    server.do("spans", 1, 1 << 8 | 9, 1000)
    row = server.requests()[1]
    assert row["stages"]["modality"][8:10].tolist() == [1, 1]
    assert row["stages"]["count"][8] == 1, "16 bits"
    assert row["stages"]["open"].sum() == 0
    assert (row["open_mask"], row["stage_mask"]) == (0, 1 << 8 | 1 << 9)
    server.do("end", 1, 0, 0)
