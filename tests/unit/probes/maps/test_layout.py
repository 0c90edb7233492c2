# SPDX-License-Identifier: Apache-2.0
"""Sizes as the kernel asserts them; tests/bpf compares names and offsets with BTF."""

from __future__ import annotations

import numpy as np
import pytest

from hotstage.probes.maps import layout
from hotstage.probes.maps.call_spec import CALL_SPEC_DTYPE


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (CALL_SPEC_DTYPE, 16),
        (layout.CALL_KEY_DTYPE, 12),
        (layout.CALL_STAT_DTYPE, 48),
        (layout.THREAD_STATE_DTYPE, 512),
        (layout.REQUEST_STATE_DTYPE, 1528),
        (layout.FINISHED_DTYPE, 1560),
        (layout.BATCH_EVENT_DTYPE, 1160),
        (layout.CALL_EVENT_DTYPE, 64),
        (layout.KERNEL_LINE_DTYPE, 256),
    ],
)
def test_sizes(dtype: np.dtype[np.void], size: int) -> None:
    assert dtype.itemsize == size


def test_a_count_key_stays_small() -> None:
    assert layout.CALL_KEY_DTYPE.itemsize <= 64


def test_a_finished_request_has_all_fields_of_one_in_flight() -> None:
    assert layout.REQUEST_DTYPE.names is not None
    assert layout.FINISHED_DTYPE.names is not None
    assert layout.FINISHED_DTYPE.names[3:] == layout.REQUEST_DTYPE.names


def test_losses_fit_their_map() -> None:
    assert max(layout.Loss) < layout.LOSS_ROWS
