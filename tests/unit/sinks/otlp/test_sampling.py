# SPDX-License-Identifier: Apache-2.0
"""Tail sampling: who is taken, who is dropped and for what reason."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from hotstage.frame.entity import Entity, EntityKind
from hotstage.sinks.otlp.requests import FinishedRequest
from hotstage.sinks.otlp.sampling import DECISION_NS, Sampler, TokenBucket, Watch

SECOND = 1_000_000_000
START = 1_000 * SECOND
END = START + 100_000_000
LOW, HIGH = 1, (1 << 128) - 1


def judge(
    sampler, trace_id=LOW, *, parent=True, failed=False, touched=False, slow=False, spans=3, now_ns=START
):
    verdict = sampler.judge(
        trace_id=trace_id,
        is_parent_sampled=parent,
        has_failed=failed,
        is_touched=touched,
        is_slow=slow,
        spans=spans,
        now_ns=now_ns,
    )
    return verdict.is_exported, verdict.reason


def test_the_baseline_is_decided_by_the_trace_id_as_opentelemetry_does():
    ours, theirs = Sampler(0.25, 50, 0), TraceIdRatioBased(0.25)
    ids = [number * 0x9E3779B97F4A7C15 % (1 << 128) for number in range(1, 400)]
    sampled = [theirs.should_sample(None, each, "").decision is Decision.RECORD_AND_SAMPLE for each in ids]
    assert [ours.in_baseline(each) for each in ids] == sampled
    assert 0.15 < sum(sampled) / len(sampled) < 0.35


@pytest.mark.parametrize(("ratio", "is_in"), [(0.0, False), (1.0, True)])
def test_a_ratio_of_none_and_of_all_mean_that(ratio, is_in):
    assert [Sampler(ratio, 50, 0).in_baseline(each) for each in (0, LOW, HIGH)] == [is_in] * 3


def test_what_went_wrong_is_taken_whatever_the_ratio():
    sampler = Sampler(0.0, 500, START)
    assert judge(sampler, HIGH) == (False, "not_sampled")
    assert judge(sampler, HIGH, failed=True) == (True, "error")
    assert judge(sampler, HIGH, failed=True, touched=True) == (True, "window")
    assert judge(sampler, HIGH, failed=True, slow=True) == (True, "error")
    assert judge(sampler, HIGH, slow=True) == (True, "slow")


def test_a_caller_that_does_not_sample_is_respected_even_then():
    sampler = Sampler(1.0, 500, START)
    assert judge(sampler, parent=False, failed=True, touched=True) == (False, "parent_not_sampled")
    assert judge(sampler, parent=None) == (True, "baseline")


def test_spans_per_second_is_a_bound_and_time_gives_new_ones():
    sampler = Sampler(0.0, 50, START)
    taken = [judge(sampler, failed=True, spans=10) for _ in range(7)]
    assert taken == [(True, "error")] * 5 + [(False, "rate_limit")] * 2
    assert judge(sampler, failed=True, spans=10, now_ns=START + SECOND // 5) == (True, "error")
    assert judge(sampler, failed=True, spans=10, now_ns=START + SECOND // 5) == (False, "rate_limit")


def test_half_of_a_burst_is_kept_for_what_went_wrong():
    sampler = Sampler(1.0, 50, START)
    assert [judge(sampler, spans=10)[0] for _ in range(4)] == [True, True, False, False]
    assert judge(sampler, spans=10, touched=True) == (True, "window")


def test_what_was_slow_leaves_a_quarter_to_what_went_wrong_and_comes_before_the_rest():
    sampler = Sampler(1.0, 40, START)
    assert [judge(sampler, spans=10)[0] for _ in range(3)] == [True, True, False]
    assert [judge(sampler, spans=10, slow=True) for _ in range(2)] == [(True, "slow"), (False, "rate_limit")]
    assert judge(sampler, spans=10, failed=True) == (True, "error")
    assert judge(sampler, spans=10, failed=True) == (False, "rate_limit")


def test_under_any_load_windowed_failed_and_slow_requests_go_first_and_the_bound_holds():
    """A minute of 200 requests/s of 9 spans each, one in a hundred remarkable: 18 spans/s of those."""
    sampler, sent, kept = (
        Sampler(1.0, 50, START),
        0,
        dict.fromkeys(("window", "error", "slow", "baseline"), 0),
    )
    wanted = dict.fromkeys(kept, 0)
    for number in range(200 * 60):
        kind = {0: "window", 100: "error", 150: "slow"}.get(number % 300, "baseline")
        wanted[kind] += 1
        flags = {"touched": kind == "window", "failed": kind == "error", "slow": kind == "slow"}
        is_sent, _ = judge(sampler, spans=9, now_ns=START + number * SECOND // 200, **flags)
        sent += 9 * is_sent
        kept[kind] += is_sent
    assert {kind: kept[kind] for kind in ("window", "error", "slow")} == {
        kind: wanted[kind] for kind in ("window", "error", "slow")
    }
    assert 0 < kept["baseline"] < wanted["baseline"] / 10
    assert sent <= 50 * 60 + 50


def test_over_a_minute_no_more_than_the_rate_goes_out():
    bucket = TokenBucket(50, START)
    out = sum(10 for tick in range(600) if bucket.take(10, START + tick * SECOND // 10))
    assert 50 * 60 <= out <= 50 * 61


def test_a_rate_below_one_request_still_lets_whole_requests_through():
    bucket = TokenBucket(2, START)
    assert bucket.take(18, START)
    assert not bucket.take(18, START + 5 * SECOND)
    assert bucket.take(18, START + 9 * SECOND)


def test_time_that_goes_backwards_gives_nothing_and_takes_nothing():
    bucket = TokenBucket(50, START)
    assert bucket.take(50, START)
    assert not bucket.take(1, START - SECOND)


@pytest.fixture
def request_of(a_request):
    return FinishedRequest.of(a_request(), {})


@pytest.mark.parametrize(
    ("opened_ns", "closed_ns", "is_touched"),
    [
        (START, None, True),
        (END + DECISION_NS, None, True),  # it opened on what this request had shown
        (END + DECISION_NS + 1, None, False),
        (START - SECOND, START, True),
        (START - SECOND, START - 1, False),
    ],
)
def test_a_window_touches_what_was_in_flight_or_had_just_ended(
    make, request_of, opened_ns, closed_ns, is_touched
):
    watch = Watch()
    watch.see([make.window("w", opened_ns=opened_ns, closed_ns=closed_ns)], END)
    assert watch.touching(request_of) == (("w",) if is_touched else ())


def test_only_windows_on_its_own_way_touch_a_request(make, request_of):
    other = Entity(EntityKind.instance, instance="i-9")
    watch = Watch()
    watch.see([make.window("a", opened_ns=START), make.window("b", opened_ns=START, entity=other)], END)
    assert watch.touching(request_of) == ("a",)


def test_a_window_is_known_as_it_was_last_seen_and_forgotten_ten_minutes_after_its_end(make, request_of):
    watch = Watch()
    watch.see([make.window("w", opened_ns=START)], END)
    watch.see([make.window("w", opened_ns=START, closed_ns=END)], END)
    assert (len(watch), watch.touching(request_of)) == (1, ("w",))
    watch.see([], END + 601 * SECOND)
    assert len(watch) == 0


def test_windows_are_bounded(make):
    watch = Watch()
    watch.see([make.window(f"w-{number}", opened_ns=START) for number in range(2_000)], END)
    assert len(watch) == 512
