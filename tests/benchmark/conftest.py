# SPDX-License-Identifier: Apache-2.0
"""The long runs are asked for by name: `pytest tests/benchmark -m slow -s`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in (config.getoption("-m") or ""):
        return
    skip = pytest.mark.skip(reason="minutes of simulated hours: run with -m slow")
    for item in items:
        if Path(item.path).parent == Path(__file__).parent and item.get_closest_marker("slow"):
            item.add_marker(skip)
