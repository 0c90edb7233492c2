# SPDX-License-Identifier: Apache-2.0
"""`hotstage memory`: figures for people, and no zero where nothing is known."""

from __future__ import annotations

import pytest

from hotstage.cli.memory import _gpu, _kinds, _why, short_names, size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "—"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (80 << 30, "80.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_sizes_are_short(count, text):
    assert size(count) == text


def a_gpu(**figure):
    row = {"gpu_uuid": "GPU-1", "used_bytes": 1, "live_bytes": None, "free_bytes": 2, "failed_fitting": 0}
    return {**row, "fragmentation": {"basis": "unknown", "ratio": None, **figure}}


def test_a_bound_is_called_one_and_nothing_is_made_up():
    assert _gpu(a_gpu())[2:6] == ("—", "2 B", "—", "unknown")
    assert _gpu(a_gpu(basis="inferred", ratio=0.75))[4] == "at least 75.0%"
    assert _gpu(a_gpu(basis="torch", ratio=0.125))[4] == "12.5%"


def test_a_process_is_on_a_gpu_that_the_table_of_gpus_has():
    one, two = "GPU-1a2b3c4d-0000", "GPU-5e6f7a8b-0000"
    names = short_names([one, two, None])
    kind = {"kind": "device", "allocated_bytes": 1, "live_count": 1, "failed_count": 0, "live_bytes": 1}
    kind |= {"high_bytes": 1, "oldest_age_seconds": None, "median_age_seconds": None}
    process = {"pid": 7, "name": "server", "device": 0, "gpu_uuid": two, "kinds": [kind]}
    assert _kinds(process, names)[0][:4] == (7, "server", "GPU-5e6f7a8b", 0)
    assert _kinds({**process, "gpu_uuid": None}, names)[0][2] == "—"
    assert short_names([one, one[:12] + "-0001"])[one] == one, "two that begin alike are told whole"


def test_why_a_process_is_not_whole():
    assert "room" in _why({"kinds": [{"untracked_bytes": 1}]})
    watched_late = {"kind": "device", "untracked_bytes": 0, "unsized_count": 0}
    assert "before it was watched" in _why({"kinds": [watched_late]})
    assert "format" in _why({"kinds": [{**watched_late, "kind": "array", "unsized_count": 1}]})
