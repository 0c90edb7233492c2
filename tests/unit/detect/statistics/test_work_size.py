# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from hotstage.detect.statistics.work_size import fit


def samples(seconds_of, count=60, sigma=0.15, seed=1):
    source = np.random.default_rng(seed)
    tokens = np.exp(source.normal(6.5, 0.8, count))
    return np.log2(seconds_of(tokens) * np.exp(source.normal(0, sigma, count))), tokens


def test_a_duration_that_grows_with_the_tokens_is_predicted_by_them():
    size = fit(*samples(lambda tokens: 0.030 + 80e-6 * tokens))
    predicted = 2 ** size.expected(np.array([200.0, 690.0, 2000.0]))
    assert predicted == pytest.approx([0.046, 0.0852, 0.19], rel=0.15)


def test_a_duration_that_ignores_the_tokens_is_plain():
    size = fit(*samples(lambda tokens: 0.050 + 0 * tokens))
    assert 2 ** size.expected(np.array([10.0, 10_000.0])) == pytest.approx([0.05, 0.05], rel=0.1)


def test_without_tokens_it_is_the_median():
    size = fit(np.log2(np.array([1.0, 2.0, 2.0, 2.0, 64.0])), np.zeros(5))
    assert 2 ** size.expected(np.zeros(1)) == pytest.approx([2.0])


def test_one_outlier_moves_nothing():
    logs, tokens = samples(lambda tokens: 0.030 + 80e-6 * tokens)
    before = fit(logs, tokens).expected(np.array([690.0]))
    logs[7] += 6
    assert fit(logs, tokens).expected(np.array([690.0])) == pytest.approx(before, abs=0.1)


def test_a_size_never_seen_may_grow_quadratically():
    size = fit(*samples(lambda tokens: 25e-6 * tokens))
    huge = np.array([200_000.0])
    quadratic = 25e-6 * huge * (huge / size.largest)
    assert size.excess(np.log2(quadratic), huge)[0] < 0.5
    assert size.excess(np.log2(8 * quadratic), huge)[0] > 2.5


def test_an_unsaid_size_is_held_against_the_long_ones():
    logs, tokens = samples(lambda tokens: 80e-6 * tokens)
    size = fit(logs, tokens)
    assert size.expected(np.zeros(1))[0] == pytest.approx(np.quantile(logs, 0.95))
