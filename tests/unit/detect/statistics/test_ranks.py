# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from hotstage.detect.statistics.ranks import median, medians, quantile


@pytest.mark.parametrize("count", [1, 2, 3, 8, 255, 256])
def test_they_are_numpys(count):
    rows = np.sort(np.random.default_rng(count).normal(size=(3, count)), axis=1)
    assert medians(rows) == pytest.approx(np.median(rows, axis=1))
    assert median(rows[0]) == pytest.approx(np.median(rows[0]))
    for share in (0.0, 0.5, 0.9, 0.95, 1.0):
        assert quantile(rows[0], share) == pytest.approx(np.quantile(rows[0], share))
