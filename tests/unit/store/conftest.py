# SPDX-License-Identifier: Apache-2.0
"""A store in a temporary directory, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.store.store import Store

BOOT = "11111111-1111-1111-1111-111111111111"


@pytest.fixture
def boot() -> str:
    return BOOT


@pytest.fixture
def store(tmp_path: Path, clock) -> Iterator[Store]:
    opened = Store(tmp_path / "state", clock, BOOT)
    yield opened
    opened.close()
