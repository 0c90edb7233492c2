# SPDX-License-Identifier: Apache-2.0
"""What the loader says when it cannot load."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.errors import LoadError, PreflightError
from hotstage.probes.loader.base import MapSizes
from hotstage.probes.loader.libbpf import LibbpfLoader


def test_a_missing_object_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        LibbpfLoader(tmp_path).load(MapSizes())
    assert str(tmp_path) in caught.value.message
    assert caught.value.remedy is not None


def test_nothing_can_be_attached_before_load(tmp_path: Path) -> None:
    loader = LibbpfLoader(tmp_path)
    with pytest.raises(LoadError):
        loader.map_fd("threads")
    loader.close()
