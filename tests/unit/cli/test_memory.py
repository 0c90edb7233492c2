# SPDX-License-Identifier: Apache-2.0
"""`hotstage memory`: figures for people, and no zero where nothing is known."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from support.answers import answering

from hotstage.cli.memory import _gpu, _kinds, _why, memory, short_names
from hotstage.cli.memory_gap import gap_line
from hotstage.cli.terminal import size


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


GIB = 1 << 30
NOTHING = {"basis": "unknown", "ratio": None, "free_bytes": None, "why": None}


def on_gpu(used=12, live=10, **figure):
    own = {"gpu_uuid": "GPU-1", "used_bytes": used and used * GIB, "live_bytes": live and live * GIB}
    return {**own, "free_bytes": 4 * GIB, "failed_fitting": 0, "fragmentation": {**NOTHING, **figure}}


def of_process(live=10, *, pid=7, kind="device", is_complete=True, gpu="GPU-1", **figure):
    kinds = [
        {"kind": kind, "live_bytes": live * GIB, "allocated_bytes": live * GIB, "live_count": 1}
        | {"failed_count": 0, "high_bytes": live * GIB, "untracked_bytes": 0, "unsized_count": 0}
        | {"oldest_age_seconds": 1.0, "median_age_seconds": 1.0}
    ]
    place = {"pid": pid, "name": "server", "device": 0, "gpu_uuid": gpu, "is_complete": is_complete}
    return {**place, "kinds": kinds, "fragmentation": {**NOTHING, **figure}}


def test_the_gap_between_used_and_allocated_is_told_with_what_it_is_made_of():
    assert gap_line(on_gpu(), [of_process(gpu="GPU-2", live=3), of_process()], "GPU-1") == (
        "GPU-1: used 12.0 GiB − allocated 10.0 GiB = 2.0 GiB, made of what was allocated before the probes "
        "came: none, of those that are watched; contexts and code of 1 process here: unknown; processes that "
        "are not watched: unknown"
    )


def test_what_of_the_gap_can_be_computed_is():
    """CUDA's pools hold 1 GiB that they have not given out, half a GiB lies free inside of pages."""
    gpu = on_gpu(basis="ledger", free_bytes=4 * GIB + GIB // 2)
    said = gap_line(
        gpu, [of_process(4), of_process(6, pid=8, kind="pool", basis="pool", free_bytes=GIB)], "g"
    )
    assert (
        "= 2.0 GiB, made of 1.0 GiB that CUDA's pools hold and have not given out; 512.0 MiB that is" in said
    )
    assert "contexts and code of 2 processes here: unknown" in said
    none = gap_line(on_gpu(basis="ledger", free_bytes=4 * GIB), [of_process()], "g")
    assert "pages" not in none, "nothing is made of nothing"


def test_an_allocators_cache_is_inside_of_what_is_allocated_and_told_as_such():
    exact = gap_line(on_gpu(), [of_process(basis="torch", free_bytes=3 * GIB)], "g")
    assert exact.endswith(". Of allocated, 3.0 GiB lies unused in PyTorch's cache")
    slack = of_process(basis="pool", free_bytes=3 * GIB, why="its blocks are not known")
    assert "3.0 GiB" not in gap_line(on_gpu(), [slack], "g"), "nor is its slack a pool's of CUDA"


def test_what_began_before_the_probes_makes_the_gap_a_bound():
    said = gap_line(on_gpu(live=None), [of_process(3, is_complete=False), of_process(4, pid=8)], "g")
    assert said.startswith(
        "g: used 12.0 GiB − allocated at least 7.0 GiB = at most 5.0 GiB, made of what was "
    )
    assert "before the probes came: unknown, of 1 process;" in said


def test_a_process_whose_gpu_is_not_known_may_be_in_the_gap():
    said = gap_line(on_gpu(), [of_process(), of_process(1, pid=8, gpu=None)], "g")
    assert "made of up to 1.0 GiB of processes whose GPU is not known;" in said


def test_a_gap_that_is_none_is_not_made_up():
    assert gap_line(on_gpu(used=None), [], "g").endswith("is unknown: NVML does not say what is used")
    managed = gap_line(on_gpu(used=8), [of_process(kind="managed")], "g")
    assert managed == (
        "g: used 8.0 GiB − allocated 10.0 GiB = −2.0 GiB: of managed memory (10.0 GiB) a part may lie on the "
        "host"
    )
    assert "not of the same moment" in gap_line(on_gpu(used=8), [of_process()], "g")


@pytest.mark.parametrize(("unobserved", "lines"), [(None, 1), ("switched off by root", 0)])
def test_the_line_stands_below_the_table_of_gpus_while_the_probes_are_on(unobserved, lines):
    body = {"gpus": [on_gpu()], "processes": [of_process()], "stages": [], "ended_processes": 0}
    body |= {"ended_bytes": 0, "unobserved": unobserved}
    with answering({"/v1/memory": body}.get) as address:
        done = CliRunner().invoke(memory, ["--agent", address], catch_exceptions=False)
    assert done.exit_code == 0
    assert (
        sum(line.startswith("GPU-1: used 12.0 GiB − allocated") for line in done.output.splitlines()) == lines
    )
