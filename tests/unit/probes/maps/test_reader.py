# SPDX-License-Identifier: Apache-2.0
"""What can be said of map reads without a kernel: a wrong descriptor is an error, never an empty result."""

from __future__ import annotations

import os

import pytest

from hotstage.probes.maps import layout
from hotstage.probes.maps.reader import HashReader


def test_a_descriptor_that_is_no_map_is_refused() -> None:
    fd = os.memfd_create("not-a-map")
    try:
        with pytest.raises(OSError):
            HashReader(fd, layout.CALL_KEY_DTYPE, layout.CALL_STAT_DTYPE)
    finally:
        os.close(fd)
