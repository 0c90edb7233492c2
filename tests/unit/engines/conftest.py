# SPDX-License-Identifier: Apache-2.0
"""Pages: those kept beside the tests, and those of fake engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotstage.engines.reader import read_page

PAGES = Path(__file__).parent / "pages"


@pytest.fixture
def kept() -> Any:
    """`kept("vllm-0.29", VLLM)` → Page."""
    return lambda name, table: read_page((PAGES / f"{name}.txt").read_bytes(), table)
