# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from hotstage_explorer.documents.snapshot_diff import diff
from hotstage_explorer.documents.snapshots import MAX_REQUESTS, Snapshot, plan, snapshot, stored

HOSTILE: list[Any] = [None, 7, "x", [], [[]], {}, {"a": 1}, float("inf"), True, -3, 1e300]


def request(key: str, *, count: int = 1, since: int = 5, updated: int = 5, **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "id": f"r-{key}",
        "updated_at_ns": updated,
        "stages": [{"stage": "tokenize", "count": count}],
        "open": [{"stage": "llm_prefill", "modality": "text", "since_ns": since, "age_seconds": 2.0}],
        **more,
    }


def taken(at: int, *requests: dict[str, Any], offset: int = 0) -> Snapshot:
    return snapshot({"taken_at_ns": at, "wall_offset_ns": offset, "requests": list(requests)})


def test_a_stored_one_has_the_snapshot_inside_and_its_causes_beside() -> None:
    found = snapshot(
        {
            "causes": [{"kind": "window", "name": "w-1"}],
            "snapshot": {"taken_at_ns": 4, "requests": [request("a")]},
        }
    )
    assert (found.taken_ns, found.causes) == (4, (("window", "w-1"),))
    assert found.requests[0].open[0].stage == "llm_prefill"


def test_the_call_is_the_requests_own_thread_or_else_its_stages() -> None:
    waits = {"call": "cuStreamSynchronize", "age_seconds": 3.0, "tid": 7}
    longer = {"call": "cuMemcpy", "age_seconds": 9.0, "tid": 8}
    own = taken(9, request("a", threads=[waits, {"call": None}], stage_threads=[longer])).requests[0]
    assert own.call is not None
    assert (own.call.call, own.call_is_own) == ("cuStreamSynchronize", True)
    other = taken(9, request("a", threads=[{"call": None}], stage_threads=[waits, longer])).requests[0]
    assert other.call is not None
    assert (other.call.call, other.call_is_own) == ("cuMemcpy", False)


@pytest.mark.parametrize(
    ("device", "shown"),
    [
        ({"ordinal": 0, "uuid": "GPU-5a3c", "index": 1}, "GPU 1 GPU-5a3c"),
        ({"ordinal": 0, "uuid": "GPU-5a3c"}, "GPU-5a3c"),
        ({"ordinal": 0, "uuid": None}, "CUDA ordinal 0"),
        ({}, "unknown"),
    ],
)
def test_a_gpu_is_the_hosts_and_an_ordinal_is_called_one(device: dict[str, Any], shown: str) -> None:
    assert taken(9, request("a", devices=[device])).requests[0].devices == (shown,)


@pytest.mark.parametrize("bad", HOSTILE)
def test_bodies_of_any_shape_are_read(bad: Any) -> None:
    names = ("key", "id", "stages", "open", "threads", "stage_threads", "devices", "contexts", "age_seconds")
    found = snapshot({"requests": [dict.fromkeys(names, bad)], "threads": bad, "losses": bad, "causes": bad})
    assert len(found.requests) == 1
    assert found.requests[0].age_seconds is None or 0 <= found.requests[0].age_seconds <= 1e100
    assert stored({"snapshots": bad}) == ()
    assert plan(
        {"requests": [dict.fromkeys(("reuse", "redo", "image", "decision"), bad)], "policy": bad}
    ).requests


def test_lists_are_bounded() -> None:
    found = snapshot({"requests": [{}] * (MAX_REQUESTS + 10)})
    assert len(found.requests) == MAX_REQUESTS


def test_handles_are_addresses_of_64_bits_or_nothing() -> None:
    threads = [{"cuda_stream": value} for value in (1 << 63, (1 << 64) - 1, 1 << 64, -1, "0x1", True, 1.5)]
    found = snapshot({"threads": threads}).threads
    assert [row.stream for row in found] == [1 << 63, (1 << 64) - 1, None, None, None, None, None]


def test_each_request_of_two_snapshots_is_in_one_list() -> None:
    before = taken(
        10, request("went"), request("still"), request("ended"), request("opened"), request("spoke")
    )
    after = taken(
        30_000_000_010,
        request("still"),
        request("ended", count=2),
        request("opened", since=9),
        request("spoke", updated=8),
        request("came"),
    )
    for found in (diff(before, after), diff(after, before)):
        assert [row.id for row in found.came] == ["r-came"]
        assert [row.id for row in found.went] == ["r-went"]
        assert [each.request.id for each in found.moved] == ["r-ended", "r-opened", "r-spoke"]
        assert [each.request.id for each in found.still] == ["r-still"]
        assert found.seconds == pytest.approx(30)
    assert found.moved[0].finished == ("tokenize",)
    assert found.moved[1].began == ("llm_prefill",)


def test_words_choose_from_all_four_lists() -> None:
    before = taken(10, request("ab"), request("went-b"))
    after = taken(20, request("ab"), request("came-b"), request("came-c"))
    found = diff(before, after).having("B r-")
    assert ([row.key for row in found.came], [row.key for row in found.went]) == (["came-b"], ["went-b"])
    assert [each.request.key for each in found.still] == ["ab"]
    assert diff(before, after).having("none").still == ()


def test_a_wall_clock_that_was_set_moves_nothing() -> None:
    before = taken(10, request("a"))
    after = taken(1000 + 20, request("a", since=1005, updated=1005), offset=1000)
    assert [each.request.key for each in diff(before, after).still] == ["a"]


def test_stored_ones_come_newest_first() -> None:
    rows = [{"id": name, "taken_at_ns": at} for name, at in (("a", 1), ("b", 3), ("", 9), ("c", None))]
    assert [row.id for row in stored({"snapshots": rows})] == ["b", "a", "c"]
