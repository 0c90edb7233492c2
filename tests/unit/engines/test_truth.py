# SPDX-License-Identifier: Apache-2.0
"""What is read from a fake engine is what it did: the same numbers under every spelling."""

from __future__ import annotations

import math

import pytest

from hotstage.engines.meter import Meter
from hotstage.engines.quantiles import Basis
from hotstage.engines.reader import read_page
from hotstage.engines.target import TABLES
from hotstage.simhost import engine_page
from hotstage.simhost.engine_model import EngineModel, EngineShape
from hotstage.simhost.engine_page import Dialect, page

PERIOD, WINDOW = 2.0, 60.0
BUSY = EngineShape(requests_per_second=9.0, slots=12)
"""More than it can do: a queue grows."""


def followed(dialect, seed=7, seconds=90.0, shape=BUSY):
    """(engine, the total of the last of pages taken every 2 s)."""
    engine, meter = EngineModel(seed, shape), Meter(WINDOW, 20)
    (table,) = [each for each in TABLES if each.runtime.value == dialect.value.split("-")[0]]
    while engine.now < seconds:
        engine.advance(PERIOD)
        read = read_page(page(engine, dialect).encode(), table)
        assert read.problems == ()
        _, total = meter.take(round(engine.now * 1e9), read)
    return engine, total


@pytest.fixture(scope="module", params=list(Dialect), ids=lambda dialect: dialect.value)
def run(request):
    return request.param, *followed(request.param)


def test_the_queue_is_the_engines(run):
    _, engine, total = run
    assert engine.waiting > 0
    assert total.queue == engine.waiting


def test_totals_are_exact_and_what_is_not_told_is_unknown(run):
    dialect, engine, total = run
    truth = engine.truth
    told = {
        "running": engine.running,
        "kv_use_ratio": engine.kv_used_ratio,
        "prompt_tokens_total": truth.prompt_tokens,
        "output_tokens_total": truth.output_tokens,
        "preemptions_total": truth.preemptions,
        "prefix_cache_queries_total": truth.prompt_tokens,
        "prefix_cache_hits_total": truth.cached_tokens,
        "mm_cache_queries_total": truth.mm_queries,
        "mm_cache_hits_total": truth.mm_hits,
    }
    mm = {"mm_cache_queries_total", "mm_cache_hits_total"}
    silent = {
        Dialect.vllm: set(),
        Dialect.vllm_collector: set(),
        Dialect.vllm_old: mm,
        Dialect.sglang: mm,
        Dialect.sglang_old: mm | {"preemptions_total", "prefix_cache_hits_total"},
        Dialect.triton: set(told),
    }[dialect]
    for name, value in told.items():
        found = getattr(total, name)
        assert math.isnan(found) if name in silent else found == value, name


def test_outcomes_are_those_of_the_requests(run):
    dialect, engine, total = run
    finished = engine.truth.finished
    if dialect in (Dialect.sglang, Dialect.sglang_old):
        assert total.requests == {"ended": finished.total(), "cancelled": finished["abort"]}
    else:
        well = finished["stop"] + finished["length"]
        assert total.requests == {"ok": well, "cancelled": finished["abort"], "error": finished["error"]}


def test_rates_are_what_ended_in_ten_seconds(run):
    dialect, engine, total = run
    ended = len(engine.truth.since("e2e", engine.now - 10.0))
    assert total.request_rate == pytest.approx(ended / 10.0)
    if dialect is not Dialect.triton:
        tokens = len(engine.truth.since("itl", engine.now - 10.0)) + len(
            engine.truth.since("ttft", engine.now - 10.0)
        )
        assert total.output_token_rate == pytest.approx(tokens / 10.0)


EDGES = {
    "vllm": {"ttft": engine_page._VLLM_TTFT, "itl": engine_page._VLLM_ITL},
    "sglang": {
        "ttft": engine_page._SGLANG_TTFT, "itl": engine_page._SGLANG_ITL, "queue": engine_page._SGLANG_QUEUE,
        "prefill": engine_page._SGLANG_STAGE, "decode": engine_page._SGLANG_STAGE,
    },
    "triton": {"ttft": tuple(edge / 1e3 for edge in engine_page._TRITON_MS)},
}  # fmt: skip


def test_counts_and_means_of_phases_are_exact_and_quantiles_lie_in_the_true_ones_bucket(run):
    dialect, engine, total = run
    edges = EDGES[dialect.value.split("-")[0]]
    assert set(total.phases) >= {"ttft", "e2e", "queue"}
    for name, phase in total.phases.items():
        if phase.basis is Basis.mean:
            continue
        true = engine.truth.since(name, engine.now - WINDOW)
        assert phase.count == len(true), name
        assert phase.mean_seconds == pytest.approx(sum(true) / len(true)), name
        for share, found in ((0.5, phase.p50_seconds), (0.95, phase.p95_seconds)):
            exact = true[math.ceil(share * len(true)) - 1]
            low, high = bucket(edges.get(name, engine_page._REQUEST_EDGES), exact)
            assert low <= found <= high, (name, share)


def bucket(edges, value):
    low = max((float(edge) for edge in edges if edge < value), default=0.0)
    return low, min((float(edge) for edge in edges if edge >= value), default=low)


def test_triton_tells_means_of_requests_that_ended_well():
    engine, total = followed(Dialect.triton, seconds=40.0)
    assert total.phases["e2e"].basis is Basis.mean
    assert 0 < total.phases["e2e"].count <= len(engine.truth.well)
    assert math.isnan(total.phases["e2e"].p95_seconds)


def test_an_idle_engine_does_not_wait_although_its_first_edge_is_coarse():
    _, total = followed(Dialect.vllm, shape=EngineShape(requests_per_second=2.0))
    queue = total.phases["queue"]
    assert (queue.p95_seconds, queue.mean_seconds, queue.basis) == (0.0, 0.0, Basis.below_edges)


def test_all_spellings_of_one_engine_read_alike():
    now, collected = (followed(each)[1] for each in (Dialect.vllm, Dialect.vllm_collector))
    assert now == collected
