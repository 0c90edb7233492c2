# SPDX-License-Identifier: Apache-2.0
"""The vendor's real NCCL and cuDNN, without a driver (`make long`: they are some hundred megabytes): every
row resolved, and calls that they refuse counted with their error.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import Probes, open_library
from tests.bpf.real_libraries import Call, call_in_children, fetch

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import Layer, Tier
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.loader import links

pytestmark = pytest.mark.long

NCCL_CALLS: tuple[Call, ...] = (
    ("ncclAllReduce", 5, "1, 2, ctypes.c_size_t(10), 7, 0, None, None"),
    ("ncclSend", 3, "1, ctypes.c_size_t(10), 7, 0, None, None"),
    ("ncclReduce", 2, "1, 2, ctypes.c_size_t(10), 7, 0, 0, None, None"),
)
CUDNN_CALLS: tuple[Call, ...] = (("cudnnBackendExecute", 7, "None, None, None"),)
INVALID_ARGUMENT, BAD_PARAM = 4, 2000

LIBRARY = {
    "libnccl": ("nvidia-nccl-cu12==2.32.3", "libnccl.so.2", NCCL_CALLS, INVALID_ARGUMENT),
    "libcudnn": ("nvidia-cudnn-cu12==9.28.0.42", "libcudnn.so.9", CUDNN_CALLS, BAD_PARAM),
}


@pytest.fixture(scope="module", params=LIBRARY)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    requirement, name, _, _ = LIBRARY[request.param]
    return request.param, fetch(requirement, name, tmp_path_factory.mktemp("real"), seconds=600)


@pytest.mark.timeout(900)
def test_every_row_is_resolved_and_refused_calls_are_errors(real: tuple[str, Path], probes: Probes) -> None:
    kind, path = real
    _, _, calls, refused = LIBRARY[kind]
    spec = next(spec for spec in LIBRARIES if spec.kind == kind)
    with ExitStack() as stack:
        library = open_library(path, kind, stack)
        parsed = ParsedLibrary(library, read_elf(library.fd), False)
        points, missed = plan(parsed, LIBRARIES, tier=Tier.T2)
        assert not missed
        assert {point.call_id for point in points} == {call.call_id for call in spec.calls}
        wanted = [point for point in points if point.symbol in {name for name, _, _ in calls}]
        attachment = probes.loader.attach(parsed.library, wanted)
        assert not attachment.refused
        stack.callback(links.detach, attachment.links)
        answers = call_in_children(str(path), calls, stack)
        ids = {call.name: call.call_id for call in spec.calls}
        for name, times, _ in calls:
            pid, result = answers[name]
            assert result == refused, name
            keys, stats = probes.rows(pid, ids[name])
            assert (int(stats["count"].sum()), int(stats["errors"].sum())) == (times, times), name
            assert set(keys["layer"]) == {Layer.LIBRARY}
