# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from hotstage.engines.meter import Meter
from hotstage.engines.reading import Page, Reading, Spread

SECOND = 1_000_000_000
NAN = math.nan


def page(tokens=None, *, ended=None, ttft=None, started=NAN, model="m", **gauges):
    counters = {} if tokens is None else {"output_tokens": float(tokens)}
    requests = {} if ended is None else {key: float(value) for key, value in ended.items()}
    spreads = {}
    if ttft is not None:
        spreads["ttft"] = Spread((1.0, math.inf), (float(ttft), float(ttft)), float(ttft), ttft * 0.5)
    return Page({model: Reading(dict(gauges), {}, counters, requests, spreads)}, started, ())


@pytest.fixture
def meter():
    return Meter(window_seconds=60.0, min_samples=20)


def follow(meter, *pages, every=2.0):
    """The total of the last page."""
    for number, each in enumerate(pages):
        _, total = meter.take(round((1000 + number * every) * SECOND), each)
    return total


def test_the_first_page_has_totals_and_gauges_and_no_rate(meter):
    total = follow(meter, page(500, ended={"ok": 3}, ttft=30, queue=4.0))
    assert (total.output_tokens_total, total.queue, total.requests) == (500.0, 4.0, {"ok": 3.0})
    assert math.isnan(total.output_token_rate) and math.isnan(total.request_rate) and total.phases == {}


def test_a_rate_is_over_the_last_ten_seconds(meter):
    total = follow(meter, *(page(tokens) for tokens in (0, 100, 200, 300, 400, 500, 600, 1600)))
    assert total.output_token_rate == pytest.approx((1600 - 200) / 10)


def test_pages_that_come_seldom_are_compared_with_the_one_before(meter):
    total = follow(meter, page(0), page(400), page(1000), every=20.0)
    assert total.output_token_rate == pytest.approx(30.0)


def test_requests_of_all_outcomes_ended_unless_the_engine_tells_them_all(meter):
    assert follow(meter, page(ended={"ok": 1}), page(ended={"ok": 7, "error": 2})).request_rate == 4.0
    other = Meter(60.0, 20)
    total = follow(other, page(ended={"ended": 1}), page(ended={"ended": 7, "cancelled": 2}))
    assert total.request_rate == 3.0


def test_phases_are_over_the_window(meter):
    pages = [page(ttft=10 * number) for number in range(41)]
    assert follow(meter, *pages).phases["ttft"].count == 300.0, "30 pages, a minute"


def test_a_count_that_fell_begins_an_epoch_and_nothing_is_compared_across_it(meter):
    follow(meter, page(1000, ttft=50))
    _, total = meter.take(1010 * SECOND, page(40, ttft=5))
    assert meter.epoch == 1
    assert math.isnan(total.output_token_rate) and total.phases == {}
    _, total = meter.take(1012 * SECOND, page(60, ttft=30))
    assert total.output_token_rate == pytest.approx(10.0)
    assert total.phases["ttft"].count == 25.0


def test_an_engine_that_began_later_and_counted_further_is_another_life(meter):
    follow(meter, page(100, started=5_000.0))
    _, total = meter.take(1010 * SECOND, page(700, started=6_000.0))
    assert meter.epoch == 1 and math.isnan(total.output_token_rate)


def test_a_model_that_appears_counts_from_zero_and_one_that_goes_is_no_restart(meter):
    follow(meter, page(100))
    both = Page({**page(120).models, **page(50, model="n").models}, NAN, ())
    models, total = meter.take(1010 * SECOND, both)
    assert [each.model for each in models] == ["m", "n"]
    assert models[1].output_token_rate == pytest.approx(5.0)
    assert total.output_tokens_total == 170.0
    models, _ = meter.take(1012 * SECOND, page(130))
    assert meter.epoch == 0 and [each.model for each in models] == ["m"]


def test_what_the_page_does_not_have_is_unknown_not_zero(meter):
    total = follow(meter, page(1), page(2))
    for name in (
        "queue",
        "running",
        "kv_use_ratio",
        "mm_cache_hits_total",
        "preemption_rate",
        "request_rate",
    ):
        assert math.isnan(getattr(total, name)), name
    assert total.waiting == {} and total.requests == {}


def test_another_engine_at_the_same_place_is_not_compared(meter):
    follow(meter, page(100))
    meter = meter.anew()
    assert meter.epoch == 1
    assert math.isnan(follow(meter, page(900)).output_token_rate)
