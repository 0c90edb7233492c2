# SPDX-License-Identifier: Apache-2.0
"""The vendor's real NCCL and cuDNN, without a driver (`make long`: some hundred megabytes each): every row
resolved, NCCL tried in a process of its own first, and calls that they refuse counted once, with their error,
by whatever name they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.bpf.conftest import open_library
from tests.bpf.real_libraries import (
    Answer,
    Call,
    assert_tried,
    assert_untried,
    call_in_children,
    fetch,
    libraries_of,
)
from tests.bpf.targets import wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import Layer, LibrarySpec, Tier
from hotstage.probes.catalogue.variants import new_variants
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.engine import ProbeEngine

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

_COLLECTIVE = "1, 2, ctypes.c_size_t(10), 7, 0, None, None"
_ASKED = "None, pointer"


@dataclass(frozen=True)
class Real:
    """A wheel's library; calls, the row that each is counted as, what it answers without a driver."""

    kind: str
    requirement: str
    file: str
    calls: tuple[tuple[Call, str, int], ...]
    harmless: str | None
    """What its trial calls with success; cuDNN's shim ends where its other libraries are out of reach."""


def _nccl(requirement: str) -> Real:
    calls = (
        (("ncclCommInitRank", 2, "pointer, 2, Id(), 0"), "ncclCommInitRank", 1),
        (("ncclAllReduce", 5, _COLLECTIVE), "ncclAllReduce", 4),
        (("ncclSend", 3, "1, ctypes.c_size_t(10), 7, 0, None, None"), "ncclSend", 4),
        (("pncclSend", 2, "1, ctypes.c_size_t(10), 7, 0, None, None"), "ncclSend", 4),
        (("ncclReduce", 2, "1, 2, ctypes.c_size_t(10), 7, 0, 0, None, None"), "ncclReduce", 4),
        (("ncclCommCount", 4, _ASKED), "ncclCommCount", 4),
        (("ncclCommSplit", 1, "None, 0, 0, pointer, None"), "ncclCommSplit", 1),
        (("ncclCommGrow", 1, "None, 2, None, -1, pointer, None"), "ncclCommGrow", 4),
        (("ncclGroupStart", 3, ""), "ncclGroupStart", 0),
    )
    return Real("libnccl", requirement, "libnccl.so.2", calls, "ncclGetVersion")


REAL = {
    "NCCL for CUDA 12": _nccl("nvidia-nccl-cu12==2.32.3"),
    "NCCL for CUDA 13": _nccl("nvidia-nccl-cu13==2.32.3"),
    "cuDNN 9": Real(
        "libcudnn",
        "nvidia-cudnn-cu12==9.28.0.42",
        "libcudnn.so.9",
        ((("cudnnBackendExecute", 7, "None, None, None"), "cudnnBackendExecute", 2000),),
        None,
    ),
}


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Real, Path]:
    found = REAL[request.param]
    return found, fetch(found.requirement, found.file, tmp_path_factory.mktemp("real"), seconds=600)


@pytest.fixture(scope="module")
def engine() -> Iterator[ProbeEngine]:
    started = ProbeEngine(ProbesConfig(xid=False, driver=False, tier="T2"), SystemClock())
    started.start()
    yield started
    started.close()


def _spec(kind: str) -> LibrarySpec:
    return next(spec for spec in LIBRARIES if spec.kind == kind)


def test_every_row_is_resolved_and_no_variant_is_unlisted(real: tuple[Real, Path]) -> None:
    found, path = real
    with ExitStack() as stack:
        library = open_library(path, found.kind, stack)
        elf = read_elf(library.fd)
        points, missed = plan(ParsedLibrary(library, elf, False), LIBRARIES, tier=Tier.T2)
        assert not missed
        assert {point.call_id for point in points} == {call.call_id for call in _spec(found.kind).calls}
        assert len({point.offset for point in points}) == len(points)
        assert not new_variants(_spec(found.kind), elf.functions)


def test_refused_calls_are_counted_once_with_their_error(
    real: tuple[Real, Path], engine: ProbeEngine
) -> None:
    """By the engine, as it meets them: it sees all libraries that a call brings with it, too."""
    found, path = real
    ids = {call.name: call.call_id for call in _spec(found.kind).calls}
    with ExitStack() as stack:
        calls = [call for call, _, _ in found.calls]
        answers = call_in_children(str(path), calls, stack, _until_tried(engine, found))
        sample = engine.read_slow()
    for (name, times, _), row, refused in found.calls:
        answer = answers[name]
        assert answer.result == refused, name
        mine = sample.keys["tgid"] == answer.pid
        counted = mine & (sample.keys["call"] == ids[row])
        stats = sample.stats[counted]
        wrong = times if refused else 0
        assert (int(stats["count"].sum()), int(stats["errors"].sum())) == (times, wrong), name
        assert set(sample.keys["layer"][counted]) == {Layer.LIBRARY}
        others = mine & (sample.keys["layer"] == Layer.LIBRARY) & ~counted
        assert int(sample.stats["count"][others].sum()) == 0, name
    if found.kind == "libcudnn":
        _passed_on(answers["cudnnBackendExecute"])


def _passed_on(answer: Answer) -> None:
    """The shim has handed it to a library that exports the same name, which no probe stands in."""
    assert any(name.startswith("libcudnn_graph") for name in answer.mapped), answer.mapped


def _until_tried(engine: ProbeEngine, found: Real) -> Callable[[int], None]:
    """It is attached, and was tried before."""

    def is_attached(pid: int) -> bool:
        return any(library.since_ns is not None for library in libraries_of(engine, pid, found.kind))

    def until(pid: int) -> None:
        wait_until(lambda: is_attached(pid), f"{found.kind} is attached")
        (library,) = libraries_of(engine, pid, found.kind)
        if found.harmless is None:
            assert_untried(library, "it ended by SIGSEGV")
        else:
            assert_tried(library, found.harmless)

    return until
