# SPDX-License-Identifier: Apache-2.0
"""What all tests share: a clock that only moves when told, and the say-so for tests that need root."""

from __future__ import annotations

import os

import pytest


class FakeClock:
    """Both clocks at once; wall time is monotonic time plus a fixed offset."""

    WALL_OFFSET_NS = 1_700_000_000_000_000_000

    def __init__(self, now_ns: int = 1_000_000_000_000) -> None:
        self.now_ns = now_ns

    def advance(self, seconds: float) -> int:
        self.now_ns += round(seconds * 1e9)
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns + self.WALL_OFFSET_NS

    def wall_ns_of(self, monotonic_ns: int) -> int:
        return monotonic_ns + self.WALL_OFFSET_NS


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Kernel tests fail without root rather than pass unseen: real BPF is what they are for."""
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("kernel"):
            item.add_marker(pytest.mark.usefixtures("needs_root"))


@pytest.fixture
def needs_root() -> None:
    pytest.fail("kernel tests load real BPF: run `sudo make test`, or `make check` for what needs no root")
