# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from hotstage.engines.quantiles import Basis, phase, quantile
from hotstage.engines.reading import Spread

INF = math.inf
EDGES = (0.1, 0.2, 0.4, INF)


def spread(counts, total=math.nan, edges=EDGES):
    return Spread(edges, tuple(map(float, counts)), float(counts[-1]), total)


def test_a_quantile_is_interpolated_inside_its_bucket():
    # 100 values: rank 95 is the 15th of the 20 between 0.2 and 0.4.
    assert quantile(EDGES, (10.0, 80.0, 100.0, 100.0), 0.95) == (pytest.approx(0.35), Basis.histogram)
    assert quantile(EDGES, (10.0, 80.0, 100.0, 100.0), 0.50) == (
        pytest.approx(0.1 + 0.1 * 40 / 70),
        Basis.histogram,
    )


def test_a_rank_above_the_last_edge_says_that_it_is_only_a_lower_limit():
    assert quantile(EDGES, (10.0, 20.0, 30.0, 100.0), 0.95) == (0.4, Basis.above_edges)


def test_a_rank_in_the_first_bucket_says_that_it_is_vague():
    assert quantile(EDGES, (100.0, 100.0, 100.0, 100.0), 0.95)[1] is Basis.below_edges
    assert quantile((0.0, 0.1, INF), (100.0, 100.0, 100.0), 0.95) == (0.0, Basis.histogram), (
        "SGLang's zero edge"
    )


def test_an_empty_queue_is_no_wait_however_coarse_the_edges_are():
    value, basis = quantile((0.3, 0.5, INF), (200.0, 200.0, 200.0), 0.95, mean=0.0)
    assert (value, basis) == (0.0, Basis.below_edges)


def test_a_mean_that_cannot_be_true_does_not_leave_the_bucket():
    assert quantile(EDGES, (0.0, 0.0, 100.0, 100.0), 0.95, mean=1e-9)[0] == 0.2


def test_of_nothing_and_of_no_edges_there_is_no_quantile():
    assert math.isnan(quantile(EDGES, (0.0, 0.0, 0.0, 0.0), 0.95)[0])
    assert math.isnan(quantile((INF,), (10.0,), 0.95)[0])


@pytest.mark.parametrize("seed", range(5))
def test_the_quantile_is_in_the_bucket_of_the_true_one(seed):
    values = np.random.default_rng(seed).lognormal(-1.0, 1.0, 500)
    edges = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, INF)
    counts = [float((values <= edge).sum()) for edge in edges]
    for share in (0.5, 0.95):
        true = np.quantile(values, share, method="inverted_cdf")
        found, _ = quantile(edges, counts, share, mean=float(values.mean()))
        place = next(row for row, edge in enumerate(edges) if true <= edge)
        assert (edges[place - 1] if place else 0.0) <= found <= edges[place]


def test_a_phase_is_what_was_added_since():
    found = phase(spread((110, 180, 200, 200), 50.0), spread((100, 100, 100, 100), 20.0), min_samples=20)
    assert found.p95_seconds == pytest.approx(0.35)
    assert (found.count, found.mean_seconds, found.basis) == (100.0, 0.3, Basis.histogram)


def test_few_samples_have_a_mean_and_no_quantile():
    found = phase(spread((5, 9, 10, 10), 2.0), None, min_samples=20)
    assert math.isnan(found.p95_seconds) and found.mean_seconds == pytest.approx(0.2)


def test_a_phase_without_its_sum_has_quantiles_and_no_mean():
    found = phase(spread((10, 80, 100, 100)), None, min_samples=20)
    assert math.isnan(found.mean_seconds) and found.p95_seconds == pytest.approx(0.35)


def test_an_edge_that_was_not_there_before_counts_from_zero():
    before = spread((50, 50), edges=(0.2, INF))
    assert phase(spread((10, 80, 100, 150)), before, 20).p95_seconds == pytest.approx(0.2 + 0.2 * 65 / 70)


def test_a_summary_is_the_engines_own_word():
    own = Spread((), (), 161.0, 0.022, {0.5: 55e-6, 0.95: 98e-6})
    found = phase(own, Spread((), (), 61.0, 0.012), 20)
    assert (found.p50_seconds, found.p95_seconds, found.basis) == (55e-6, 98e-6, Basis.summary)
    assert found.mean_seconds == pytest.approx(0.0001)


def test_a_sum_and_a_count_are_a_mean():
    found = phase(Spread((), (), 30.0, 9.0), Spread((), (), 10.0, 4.0), 20)
    assert (found.mean_seconds, found.count, found.basis) == (0.25, 20.0, Basis.mean)
    assert math.isnan(found.p95_seconds)
