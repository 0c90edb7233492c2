# SPDX-License-Identifier: Apache-2.0
import pytest

from hotstage.simhost.engine_model import PHASES, EngineModel, EngineShape


def run(seed=5, seconds=60.0, step=1.0, **shape):
    engine = EngineModel(seed, EngineShape(**shape))
    while engine.now < seconds:
        engine.advance(step)
    return engine


def test_one_seed_is_one_history_whatever_the_steps():
    fine, coarse = run(step=0.25), run(step=30.0)
    assert fine.truth == coarse.truth
    assert (fine.waiting, fine.running, fine.kv_used_ratio) == (
        coarse.waiting,
        coarse.running,
        coarse.kv_used_ratio,
    )
    assert run(seed=6).truth != fine.truth


def test_requests_are_conserved():
    engine = run(requests_per_second=9.0)
    ended, begun = engine.truth.finished.total(), len(engine.truth.durations["queue"])
    assert ended + engine.running == begun
    assert len(engine.truth.durations["e2e"]) == len(engine.truth.durations["decode"]) == ended
    assert engine.waiting > 0 and engine.running <= 16


def test_tokens_are_those_between_which_time_passed():
    truth = run().truth
    assert len(truth.durations["ttft"]) + len(truth.durations["itl"]) == truth.output_tokens


def test_a_whole_request_is_its_queue_prefill_and_decode():
    truth = run(seconds=200.0, requests_per_second=0.2).truth
    whole = sum(seconds for _, seconds in truth.durations["e2e"])
    parts = [
        sum(seconds for _, seconds in truth.durations[phase]) for phase in ("queue", "prefill", "decode")
    ]
    assert whole == pytest.approx(sum(parts), rel=0.02), "all but the last few have ended"


def test_nothing_is_known_before_its_time():
    engine = run(seconds=20.0)
    for phase in PHASES:
        moments = [at for at, _ in engine.truth.durations[phase]]
        assert moments == sorted(moments) and moments[-1] <= engine.now


def test_more_than_it_can_do_fills_the_cache_and_then_the_queue():
    assert run(requests_per_second=0.5).waiting == 0
    crowded = run(requests_per_second=9.0, kv_tokens=4_000)
    assert crowded.waiting > 20 and 0.5 < crowded.kv_used_ratio <= 1.0
