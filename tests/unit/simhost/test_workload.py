# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections import Counter
from itertools import islice, takewhile

import pytest

from hotstage.simhost.workload import (
    ENDPOINTS,
    MAX_OUTPUT_TOKENS,
    MAX_TEXT_TOKENS,
    Profile,
    arrivals,
    traceparent_of,
)
from hotstage.stages.stage import Modality


@pytest.fixture(scope="module")
def profile():
    return Profile.load()


def drawn(profile, seed=1, load=lambda seconds: 1.0, seconds=600.0):
    stream = arrivals(seed=seed, instances=2, profile=profile, load=load)
    return list(takewhile(lambda arrival: arrival.at_seconds < seconds, stream))


def test_the_same_seed_gives_the_same_requests_and_another_seed_others(profile):
    assert drawn(profile, seconds=30) == drawn(profile, seconds=30)
    assert drawn(profile, seconds=30) != drawn(profile, seed=2, seconds=30)


def test_requests_come_in_order_with_ids_of_their_own(profile):
    requests = drawn(profile, seconds=60)
    assert [request.at_seconds for request in requests] == sorted(request.at_seconds for request in requests)
    assert len({request.id for request in requests}) == len(requests)


def test_every_endpoint_has_its_rate(profile):
    counts = Counter(request.endpoint for request in drawn(profile))
    for endpoint in ENDPOINTS:
        assert counts[endpoint.path] / 600 == pytest.approx(endpoint.requests_per_second, rel=0.12)


def test_the_demo_has_images_enough_for_eight_in_two_and_a_half_seconds():
    rates = {endpoint.modality: endpoint.requests_per_second for endpoint in ENDPOINTS}
    assert rates[Modality.image] * 2.5 >= 8
    assert min(rates.values()) >= 1.2


def test_both_instances_serve_every_endpoint(profile):
    seen = {(request.endpoint, request.instance) for request in drawn(profile, seconds=60)}
    assert len(seen) == 2 * len(ENDPOINTS)


def test_a_higher_load_brings_the_same_requests_sooner(profile):
    calm, busy = drawn(profile, seconds=50), drawn(profile, load=lambda seconds: 2.5, seconds=20)
    by_endpoint = lambda requests: [r.media_tokens for r in requests if r.modality is Modality.image]  # noqa: E731
    assert by_endpoint(calm)[:40] == by_endpoint(busy)[:40]
    assert len(busy) == pytest.approx(len(calm), abs=3)


def test_nothing_arrives_while_idle(profile):
    requests = drawn(profile, load=lambda seconds: 0.0 if 10 <= seconds < 20 else 1.0, seconds=30)
    assert not [request for request in requests if 10.1 < request.at_seconds < 20]
    assert [request for request in requests if request.at_seconds > 20]


def test_most_requests_come_with_a_traceparent_of_their_own_some_unsampled_some_without():
    found = [traceparent_of(f"r-{number}") for number in range(400)]
    assert found == [traceparent_of(f"r-{number}") for number in range(400)]
    traced = [text for text in found if text]
    assert all(re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", text) for text in traced)
    assert len({text[3:35] for text in traced}) == len(traced)
    shares = Counter(text[-2:] for text in found)
    assert (0.02 < shares[""] / 400 < 0.2, 0.02 < shares["00"] / 400 < 0.2) == (True, True)


def test_tokens_stay_within_what_a_demo_can_answer(profile):
    for request in islice(drawn(profile), 3000):
        assert 1 <= request.output_tokens <= MAX_OUTPUT_TOKENS
        assert 1 <= request.text_tokens <= MAX_TEXT_TOKENS
        assert (request.media_tokens == 0) == (request.modality is Modality.text)
        assert (request.media_bytes > 0) == (request.modality is not Modality.text)
