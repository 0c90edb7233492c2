# SPDX-License-Identifier: Apache-2.0
"""Time of finished requests by stage, adapter and wait: mean, p95, variance and share, worked out by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Stage

from hotstage.config.settings import FrameConfig
from hotstage.frame.component_table import LORA_ROWS_MAX, OWN_ROWS_MAX, component_table
from hotstage.frame.request_timings import RequestTimings
from hotstage.frame.timing_rows import TIMING_DTYPE
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.spans import OUTCOME_CANCELLED, OUTCOME_ERROR, OUTCOME_REFUSED

START = 1000 * SECOND


def ended(at_ns, seconds=1.0, *, outcome=0, lora=None):
    """A request whose prefill took the first half of its time."""
    took = round(seconds * SECOND)
    request = KernelRequest(at_ns, at_ns=at_ns - took)
    request.begin(Stage.llm_prefill, at_ns - took).end(Stage.llm_prefill, at_ns - took + took // 2)
    if lora is not None:
        request.begin(Stage.lora_apply, at_ns - took)
        request.end(Stage.lora_apply, at_ns - took + round(lora * SECOND))
    return request.finished(at_ns, outcome)


def table_of(rows, now_ns=START + SECOND):
    found = RequestTimings(FrameConfig())
    found.keep(np.array(rows, FINISHED_DTYPE))
    return found.components(now_ns)


def named(table, **wanted):
    (row,) = [
        row for row in table.components if all(getattr(row, name) == value for name, value in wanted.items())
    ]
    return row


def test_components_say_mean_p95_variance_and_share():
    times = [0.010 + 0.001 * n for n in range(20)]
    table = table_of([ended(START + n * MS, lora=time) for n, time in enumerate(times)])
    stages = [row.stage for row in table.components if row.kind == "stage"]
    assert stages == ["gateway", "model_load", "lora_apply", "llm_prefill"]
    lora = named(table, stage="lora_apply")
    assert (lora.count, lora.p95_seconds) == (20, pytest.approx(0.028, rel=1e-6))
    assert lora.mean_seconds == pytest.approx(statistics.mean(times), rel=1e-6)
    assert lora.variance == pytest.approx(statistics.variance(times), rel=1e-5)
    assert lora.share == pytest.approx(sum(times) / 20, rel=1e-6)
    assert named(table, stage="llm_prefill").share == pytest.approx(0.5)
    gateway = named(table, stage="gateway")
    assert (gateway.count, gateway.mean_seconds, gateway.variance, gateway.share) == (0, None, None, None)
    assert (table.request.count, table.request.mean_seconds, table.request.variance) == (20, 1.0, 0.0)


def test_gaps_are_components_and_what_the_kernel_did_not_tell_is_null():
    table = table_of([ended(START + n * MS) for n in range(20)])
    gap = named(table, stage="unmarked", source="gap")
    assert (gap.kind, gap.count, gap.mean_seconds, gap.share) == ("wait", 20, 0.5, 0.5)
    for name in ("run_queue", "sync", "copy", "alloc"):
        wait = named(table, stage=name, source="kernel")
        assert (wait.kind, wait.count, wait.mean_seconds) == ("wait", 0, None)


def test_below_twenty_there_is_no_p95_and_below_two_no_variance():
    table = table_of([ended(START)])
    assert (table.request.p95_seconds, table.request.variance, table.request.mean_seconds) == (
        None,
        None,
        1.0,
    )


def test_only_requests_whose_latency_says_something_count():
    outcomes = (0, OUTCOME_ERROR, OUTCOME_CANCELLED, OUTCOME_REFUSED)
    table = table_of([ended(START + n, outcome=outcome) for n, outcome in enumerate(outcomes)])
    assert table.request.count == 2


def test_a_request_leaves_with_the_window():
    assert table_of([ended(START)], START + 59 * SECOND).request.count == 1
    assert table_of([ended(START)], START + 60 * SECOND).request.count == 0


def test_a_small_spread_on_a_large_time_keeps_its_variance():
    seconds = [1e5 + 1e-3 * (n % 2) for n in range(20)]
    table = table_of([ended(START + 10**6 * SECOND, each) for each in seconds])
    assert table.request.variance == pytest.approx(statistics.variance(seconds), rel=1e-3)


def adapters(*told):
    """Rows as they are reduced: (rank, module number, seconds in lora_apply)."""
    rows = np.zeros(len(told), TIMING_DTYPE)
    rows["seconds"], rows["stages"], rows["gaps"], rows["waits"] = 1.0, np.nan, np.nan, np.nan
    for at, (rank, module, seconds) in enumerate(told):
        rows["lora_rank"][at], rows["lora_module"][at] = rank, module
        rows["stages"][at, Stage.lora_apply] = seconds
    return component_table(rows, 60.0, 20, {})


def test_adapters_have_a_row_each_by_rank_and_module():
    told = [(16, 1, 0.25), (16, 1, 0.75), (8, 0, 0.125), (0, 14, 1.0), (0, 0, 4.0)]
    rows = [row for row in adapters(*told).components if row.stage == "lora_apply"]
    assert [(row.lora_rank, row.lora_module, row.count, row.mean_seconds) for row in rows] == [
        (None, None, 5, 1.225),
        (16, "q_proj", 2, 0.5),
        (None, "all", 1, 1.0),
        (8, None, 1, 0.125),
    ]
    assert rows[1].variance == 0.125
    assert rows[1].share == pytest.approx(0.2)


def test_adapters_beyond_the_bound_share_a_row():
    told = [(rank, 1, 0.5) for rank in range(1, LORA_ROWS_MAX + 4)] + [(1, 1, 0.5)]
    rows = [row for row in adapters(*told).components if row.stage == "lora_apply"]
    assert len(rows) == 2 + LORA_ROWS_MAX
    assert (rows[1].lora_rank, rows[1].count) == (1, 2)
    assert (rows[-1].lora_rank, rows[-1].lora_module, rows[-1].count) == (None, "other", 3)


def test_modules_that_no_table_knows_share_a_row():
    rows = np.array([ended(START) for _ in range(4)])
    rows["lora_rank"], rows["lora_module"] = 0, [15, 16, 99, 255]
    rows["stages"]["count"][:, Stage.lora_apply] = 1
    found = [row for row in table_of(list(rows), START).components if row.lora_module]
    assert [(row.lora_module, row.count) for row in found] == [("other", 4)]


def test_own_stages_show_by_the_name_that_their_process_gave_them():
    rows = np.zeros(3, TIMING_DTYPE)
    rows["seconds"], rows["stages"], rows["gaps"], rows["waits"] = 1.0, np.nan, np.nan, np.nan
    rows["pid"] = [7, 7, 8]
    rows["stage_ids"][:, 18] = [33, 34, 33]
    rows["stages"][:, 18] = [0.5, 0.25, 0.125]
    table = component_table(rows, 60.0, 20, {(7, 33): "rerank", (8, 33): "watermark", (7, 34): "rerank"})
    own = {row.stage: (row.count, row.mean_seconds) for row in table.components if row.count}
    assert own == {"rerank": (2, 0.375), "watermark": (1, 0.125)}


def test_a_name_has_one_row_also_where_a_server_makes_a_pinned_one_up_or_makes_up_too_many():
    count = OWN_ROWS_MAX + 3
    rows = np.zeros(count + 1, TIMING_DTYPE)
    rows["seconds"], rows["stages"], rows["gaps"], rows["waits"] = 1.0, np.nan, np.nan, np.nan
    rows["pid"], rows["stage_ids"][:, 18], rows["stages"][:, 18] = range(count + 1), 40, 0.5
    names = {(pid, 40): f"own {pid}" for pid in range(count)} | {(0, 40): "sample", (count, 40): "other"}
    rows["stages"][0, Stage.sample] = rows["stages"][1, Stage.sample] = 0.25
    found = component_table(rows, 60.0, 20, names).components
    told = [(row.stage, row.kind, row.source) for row in found]
    assert len(told) == len(set(told))
    by_name = {row.stage: (row.count, row.mean_seconds) for row in found if row.count}
    assert by_name["sample"] == (2, 0.5)
    assert sum(number for number, _ in by_name.values()) == count + 1 + 1


def test_absurd_records_give_finite_numbers():
    row = ended(START)
    row["stages"]["count"], row["stages"]["total_ns"] = 2**16 - 1, 2**64 - 1
    backwards = ended(START)
    backwards["started_ns"] = 2**64 - 1
    table = table_of([row, backwards] * 20, START)
    for each in (table.request, *table.components):
        values = (each.mean_seconds, each.p95_seconds, each.variance, each.share)
        assert all(value is None or math.isfinite(value) for value in values), each
