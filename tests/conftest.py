# SPDX-License-Identifier: Apache-2.0
"""What all tests share: a clock that only moves when told, and the say-so for tests that need root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from hotstage.breaker.record import BreakerRecord, BreakerState, Transition
from hotstage.detect.finding import Evidence, Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.store.outbox import Event
from hotstage.windows.window import AnomalyWindow, Candidate, Cause

# How long an example takes says nothing of it on a machine that runs two halves of the tests at once.
hypothesis.settings.register_profile("hotstage", deadline=None)
hypothesis.settings.load_profile("hotstage")


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


LOAD_NOTHING = ("test_build", "test_frames", "test_layout", "test_nvml", "test_entry_points")
"""Modules of tests/bpf and tests/simhost that load no probes and start no CUDA program, but compile and read
files, or ask NVML's stub: they run beside the others.
"""


HOST_FOLDERS = ("benchmark", "bpf", "browser", "integration", "simhost", "unit/marks")
"""Where `make host` looks for what must run alone: to read all tests would take it a quarter of a minute.
`make pages` looks for its own in `browser` alone.
"""

OTHER_TARGETS = ("image", "clean_debian", "long", "other_kernels", "torch")
"""Marks of tests that `make test` leaves out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`host` marks what must run alone: it loads probes, or makes calls or marks that probes would see.

    Kernel tests fail without root rather than pass unseen: real BPF is what they are for.
    """
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parent
        is_alone = _is_in(folder, "bpf", "simhost", "unit/marks") and item.path.stem not in LOAD_NOTHING
        if is_alone or item.get_closest_marker("kernel"):
            item.add_marker(pytest.mark.host)
        _assert_made_by_a_target(item, folder)
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("kernel"):
            item.add_marker(pytest.mark.usefixtures("needs_root"))


def _is_in(folder: Path, *folders: str) -> bool:
    return any(folder.is_relative_to(each) for each in folders)


def _assert_made_by_a_target(item: pytest.Item, folder: Path) -> None:
    """No test may lie where no part of `make test` looks for it."""
    if any(map(item.get_closest_marker, OTHER_TARGETS)):
        return
    if item.get_closest_marker("host") and not _is_in(folder, *HOST_FOLDERS):
        raise pytest.UsageError(f"{item.nodeid}: `make host` looks in {', '.join(HOST_FOLDERS)} alone")
    if item.get_closest_marker("browser") and not _is_in(folder, "browser"):
        raise pytest.UsageError(f"{item.nodeid}: `make pages` looks in browser alone")


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@pytest.fixture
def drop_root() -> Iterator[Callable[[], None]]:
    """Call it to be nobody until the test ends; who is not root may be kept out by a mode already."""
    user = os.geteuid()
    yield lambda: os.seteuid(65534) if user == 0 else None
    os.seteuid(user)


@pytest.fixture
def needs_root() -> None:
    pytest.fail("kernel tests load real BPF: run `sudo make test`, or `make check` for what needs no root")


class Factory:
    """Windows, transitions and events with sensible contents; a test names only what it is about."""

    @staticmethod
    def window(id: str = "w-1", **changed: Any) -> AnomalyWindow:
        entity = Entity(EntityKind.stage, stage="vision_encode", modality="image")
        cause = Cause(
            "stage_latency", "vision_encode is slow", 0.9, (Candidate("stage_latency", 0.9, "10 x", entity),)
        )
        window = AnomalyWindow(
            id, "stage_latency", Severity.warning, entity, opened_ns=5_000, updated_ns=6_000, peak_ns=6_000,
            closed_ns=None, score=3.5, cause=cause,
            evidence=(Evidence("oldest_age_seconds", 4.2, 1.0, "s", 4_000, "20 requests"),), findings=1,
        )  # fmt: skip
        return replace(window, **changed)

    @staticmethod
    def transition(name: str = "stage:vision_encode:image", **changed: Any) -> Transition:
        scope = Entity(EntityKind.stage, stage="vision_encode", modality="image")
        return replace(
            Transition(name, scope, BreakerState.closed, BreakerState.open, 7_000, "window w-1", "w-1"),
            **changed,
        )

    @classmethod
    def breaker(cls, name: str = "stage:vision_encode:image", **changed: Any) -> BreakerRecord:
        moved = cls.transition(name)
        return replace(
            BreakerRecord(
                name, moved.scope, enforced=False, state=BreakerState.open, since_ns=7_000, updated_ns=7_000,
                reason="window w-1", window_id="w-1", transitions=(moved,),
            ),
            **changed,
        )  # fmt: skip

    @staticmethod
    def event(id: str = "e-1", **changed: Any) -> Event:
        event = Event(id, "io.hotstage.breaker.opened.v1", "stage:vision_encode:image", 1, b'{"data":{}}')
        return replace(event, **changed)


@pytest.fixture
def make() -> Factory:
    return Factory()
