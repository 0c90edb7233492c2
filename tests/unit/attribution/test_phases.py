# SPDX-License-Identifier: Apache-2.0
"""When the work of a thread's bursts says prefill and decode, and what must never be told as either."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotstage.attribution.phases import DOUBLING, MIN_PROMPTS, NO_BURSTS, PhaseShape, ThreadPhases, judge
from hotstage.probes.maps.bursts import BURST_DTYPE, PREFILL_UNTOLD, PhaseLimits

Burst = tuple[int, int, int, int, int]
LAUNCHES = 400


def head(tokens: float, fixed: int = 7) -> int:
    """Of 32 launches: `fixed` have 64 blocks whatever the tokens, the others two for each."""
    return int(8 * (fixed * 6 + (32 - fixed) * np.log2(2 * tokens)))


def generation(seed: int, requests: int, *, batch: int = 1, launches: int = LAUNCHES) -> Iterator[Burst]:
    """One prompt after another; decode goes on with what is on the device."""
    source = random.Random(seed)
    for _ in range(requests):
        prompt = source.randint(20, 3000)
        yield head(prompt * batch), launches, prompt * batch * 8, prompt * batch * 8, 8
        for _ in range(source.randint(20, 200)):
            yield head(batch), launches + 20, 0, 0, 8


def engine(seed: int, steps: int, *, most: int, is_mixed: bool, shortest: int = 100) -> Iterator[Burst]:
    """Continuous batching: each step is given its tokens by the host and brings back 4 bytes a sequence."""
    source, running = random.Random(seed), 0
    for _ in range(steps):
        is_prompt = running < most and (not running or source.random() < 0.1)
        if is_prompt:
            prompt = source.randint(shortest, 4000)
            others = running if is_mixed else 0
            yield head(prompt + others), LAUNCHES, (prompt + others) * 20, 4 * (1 + others), 4 * (1 + others)
            running += 1
        else:
            yield head(running), LAUNCHES, running * 60, 4 * running, 4 * running
            running -= source.random() < 0.08
        running = max(running, 0)


def of(bursts: Iterator[Burst] | list[Burst]) -> np.ndarray:
    return np.array(list(bursts), BURST_DTYPE)


def told(bursts: Iterator[Burst] | list[Burst]) -> PhaseShape:
    rows = of(bursts)
    outputs = rows["output_bytes"]
    return judge(rows, int(outputs[outputs > 0].min(initial=2**32 - 1)))


def limits_of(shape: PhaseShape) -> PhaseLimits:
    assert shape.limits is not None, shape.why
    return shape.limits


def is_decode(limits: PhaseLimits, burst: Burst) -> bool:
    return limits.decode_least <= burst[0] <= limits.decode_most and burst[2] <= limits.decode_input


def is_prefill(limits: PhaseLimits, burst: Burst) -> bool:
    return burst[0] >= limits.prefill_least and limits.prompt_least <= burst[2] <= limits.prompt_most


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 8, 32]))
def test_a_generation_loop_is_told_and_never_the_wrong_way_round(seed: int, batch: int) -> None:
    bursts = list(generation(seed, 12, batch=batch))
    limits = limits_of(told(bursts))
    for burst in generation(seed + 1, 12, batch=batch):
        is_prompt = burst[2] > 0
        assert not (is_prompt and is_decode(limits, burst))
        assert is_prompt or not is_prefill(limits, burst)
        assert is_prompt or is_decode(limits, burst)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 48))
def test_an_engine_that_keeps_prompts_apart_is_told(seed: int, most: int) -> None:
    bursts = list(engine(seed, 1500, most=most, is_mixed=False))
    limits = limits_of(told(bursts))
    decodes = [burst for burst in bursts if burst[4] * 15 == burst[2]]
    prompts = [burst for burst in bursts if burst[4] == 4 and burst[2] >= 2000]
    assert np.mean([is_decode(limits, burst) for burst in decodes]) > 0.95
    assert not any(is_prefill(limits, burst) for burst in decodes)
    assert not any(is_decode(limits, burst) for burst in prompts)
    assert limits.prefill_least != PREFILL_UNTOLD
    assert np.mean([is_prefill(limits, burst) for burst in prompts]) > 0.5


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(4, 48))
def test_where_prompts_share_bursts_with_decode_only_decode_is_told(seed: int, most: int) -> None:
    bursts = list(engine(seed, 1500, most=most, is_mixed=True))
    shape = told(bursts)
    limits = limits_of(shape)
    assert limits.prefill_least == PREFILL_UNTOLD
    assert "may hold decode as well" in shape.why
    assert not any(is_decode(limits, burst) for burst in bursts if burst[2] != burst[4] * 15)


def encoder(source: random.Random) -> Burst:
    images = source.choice([1, 1, 1, 2, 4])
    return head(256 * images), 120, 301_056 * images, 301_056 * images, 1536 * images


def classifier(source: random.Random) -> Burst:
    tokens = source.choice([32, 32, 32, 32, 512])
    return head(tokens), LAUNCHES, tokens * 16, tokens * 8, 8


def embedder(source: random.Random) -> Burst:
    tokens = source.choice([32, 32, 32, 32, 512])
    return head(tokens), LAUNCHES, tokens * 16, tokens * 8, 1024


def recommender(source: random.Random) -> Burst:
    rows = source.choice([1, 1, 1, 1, 32])
    return head(rows), LAUNCHES, rows * 4, rows * 4, rows * 4


def trainer(source: random.Random) -> Burst:
    tokens = source.choice([128, 128, 128, 1024])
    return head(tokens * 8), 3 * LAUNCHES, tokens * 64, tokens * 64, 4


@pytest.mark.parametrize("make", [encoder, classifier, embedder, recommender, trainer])
@pytest.mark.parametrize("run", [1, 7])
def test_what_is_no_language_model_is_not_told(make, run: int) -> None:
    """Alone or in runs of equal bursts."""
    for seed in range(20):
        source = random.Random(seed)
        bursts = [burst for _ in range(900 // run) for burst in [make(source)] * run]
        assert told(bursts).limits is None, seed


def test_denoising_at_two_resolutions_is_not_told() -> None:
    source = random.Random(1)
    bursts = [
        (head(pixels), LAUNCHES, 8, 8, 8)
        for _ in range(40)
        for pixels in [source.choice([1024, 1024, 1024, 4096])] * 25
    ]
    shape = told(bursts)
    assert shape.limits is None
    assert "repeat themselves as well" in shape.why


def test_an_encoder_on_the_same_thread_leaves_prefill_untold() -> None:
    bursts = []
    for burst in generation(3, 12):
        bursts += [(head(256), 120, 301_056, 301_056, 0)] * (burst[2] > 0)
        bursts.append(burst)
    shape = told(bursts)
    assert limits_of(shape).prefill_least == PREFILL_UNTOLD
    assert "may be encoders" in shape.why


def test_an_encoder_with_decodes_work_ends_the_telling() -> None:
    bursts = []
    for nth, burst in enumerate(generation(3, 12)):
        bursts += [(head(1), 120, 0, 0, 0)] * (nth % 10 == 0)
        bursts.append(burst)
    assert "another model's" in told(bursts).why


def test_prompts_whose_input_went_to_another_burst_are_not_told() -> None:
    bursts = [(head_, launches, 0, 0, output) for head_, launches, _, _, output in generation(3, 12)]
    assert "unless another burst took it in" in told(bursts).why


def test_too_little_is_told_in_words() -> None:
    assert "64 are the least" in told(list(generation(1, 1))[:30]).why
    few = [*[(head(1), LAUNCHES, 0, 0, 8)] * 200, *[(head(900), LAUNCHES, 7200, 7200, 8)] * (MIN_PROMPTS - 1)]
    assert f"{MIN_PROMPTS} are the least" in told(few).why


def test_why_says_numbers_with_units() -> None:
    assert told(generation(1, 12)).why.startswith("of 1")
    for words in ("doublings of grid blocks a launch", "bring back 8 bytes", "prompts from"):
        assert words in told(generation(1, 12)).why


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 5), max_size=200))
def test_any_counters_give_a_verdict_that_the_kernel_can_hold(bursts: list[Burst]) -> None:
    shape = told(bursts * 3)
    if shape.limits is not None:
        assert all(0 <= getattr(shape.limits, name) < 2**32 for name in PhaseLimits.__slots__)


def test_a_verdict_holds_until_two_looks_say_otherwise() -> None:
    thread = ThreadPhases()
    assert thread.shape is NO_BURSTS
    model = of(generation(5, 30))
    thread.advance(model[:600])
    assert thread.shape.limits is None
    thread.advance(model[600:700])
    assert thread.shape.limits is not None
    other = of([(head(1), LAUNCHES, 5000, 5000, 8)] * 2100)
    thread.advance(other)
    assert thread.shape.limits is not None
    assert thread.advance(of([])).limits is not None, "a pause says nothing"
    thread.advance(other[:50])
    assert thread.shape.limits is None
    assert DOUBLING == 32 * 8
