# SPDX-License-Identifier: Apache-2.0
"""A demo under real monitoring that the tests of a module share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.alarms import Watched, watched_demo


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Watched]]:
    """`watch(*faults, seed=…)`: a demo that lasts as long as the module."""
    with ExitStack() as stack:
        yield lambda *faults, seed: stack.enter_context(
            watched_demo(tmp_path_factory.mktemp("watched"), *faults, seed=seed)
        )
