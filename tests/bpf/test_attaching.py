# SPDX-License-Identifier: Apache-2.0
"""Loading and attaching: rungs, one link for each kind, refusals one by one, nothing left behind."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bpf.conftest import Build, Probes, Workload, open_library, points_of, start_probes

from hotstage.errors import AttachError, LoadError, PreflightError
from hotstage.probes.loader import links
from hotstage.probes.loader.base import AttachPoint, MapSizes, PointKind, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader

LAUNCH, WAIT = 1, 64


def byte_at(pid: int, path: Path, file_offset: int) -> bytes:
    """The byte a process sees at an offset of a mapped file."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        start, end = (int(part, 16) for part in fields[0].split("-"))
        skipped = file_offset - int(fields[2], 16)
        if len(fields) == 6 and fields[5] == str(path) and "x" in fields[1] and 0 <= skipped < end - start:
            with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                memory.seek(start + skipped)
                return memory.read(1)
    raise AssertionError(f"{path} is not mapped by {pid}")


def test_the_best_rung_is_taken_when_none_is_asked_for(objects: Path) -> None:
    loader = LibbpfLoader()
    assert loader.load(MapSizes()).rung is Rung.SESSION
    loader.close()


def test_a_missing_object_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="is missing") as caught:
        LibbpfLoader(tmp_path).load(MapSizes())
    assert "make bpf" in str(caught.value.remedy)


def test_a_refused_object_carries_what_the_verifier_said(objects: Path, tmp_path: Path) -> None:
    for name in ("hotstage.bpf.o", "hotstage_pairs.bpf.o", "hotstage_nobtf.bpf.o"):
        (tmp_path / name).write_bytes((objects / name).read_bytes()[:4096])
    with pytest.raises(LoadError, match="rung S"):
        LibbpfLoader(tmp_path).load(MapSizes())


def test_maps_the_kernel_cannot_hold_fail_the_load(objects: Path) -> None:
    loader = LibbpfLoader()
    with pytest.raises(LoadError, match="call_stats"):
        loader.load(MapSizes(call_stats=1 << 31), Rung.MULTI)
    assert "call_stats" in loader.refusals[Rung.MULTI]


def test_one_link_for_each_library_and_kind(build: Build, objects: Path) -> None:
    with ExitStack() as stack:
        probes = start_probes(build, Rung.SESSION, stack)
        by_kind = [link.kind for link in probes.attached]
        assert by_kind.count(PointKind.LAUNCH) == by_kind.count(PointKind.TIMED) == 1
        assert all(link.in_kernel == 1 for link in probes.attached)
        assert links.detach(probes.attached) < 1.0


def test_points_of_libcuda_stand_on_emulated_instructions(build: Build) -> None:
    with ExitStack() as stack:
        points = {point.symbol: point for point in points_of(open_library(build.cuda, "libcuda", stack))}
    assert points["cuLaunchKernel"].offset == points["cuLaunchKernel"].symbol_offset + 10
    assert points["cuCtxSynchronize"].offset == points["cuCtxSynchronize"].symbol_offset
    assert {symbol for symbol, point in points.items() if not point.is_emulated} == {"cuEventSynchronize"}


def test_detaching_stops_the_counting_and_restores_the_code(
    build: Build, objects: Path, workload: Workload
) -> None:
    with ExitStack() as stack:
        probes = start_probes(build, Rung.MULTI, stack)
        (point,) = [p for p in points_of(probes.cuda) if p.symbol == "cuLaunchKernel"]
        original = os.pread(probes.cuda.fd, 1, point.offset)
        workload.launch(3)
        assert byte_at(workload.pid, build.cuda, point.offset) == b"\xcc" != original
        links.detach(probes.attached)
        links.detach(probes.attached)
        assert byte_at(workload.pid, build.cuda, point.offset) == original
        workload.launch(5)
        assert probes.count(workload.pid, LAUNCH) == 3


@pytest.mark.parametrize("rung", list(Rung))
def test_points_that_the_kernel_refuses_are_named_and_the_rest_holds(
    build: Build, objects: Path, workload: Workload, rung: Rung
) -> None:
    with ExitStack() as stack:
        loader = LibbpfLoader()
        stack.callback(loader.close)
        programs = loader.load(MapSizes(), rung)
        library = open_library(build.cuda, "libcuda", stack)
        wanted = [p for p in points_of(library) if p.symbol in ("cuLaunchKernel", "cuGraphLaunch")]
        past_the_end = replace(wanted[0], symbol="beyond", offset=library.size + 4096)
        attachment = links.attach(programs, library, [*wanted, past_the_end])
        stack.callback(links.detach, attachment.links)
        assert [refused.point.symbol for refused in attachment.refused] == ["beyond"]
        assert {p.symbol for link in attachment.links for p in link.points} == {
            "cuLaunchKernel",
            "cuGraphLaunch",
        }


def test_a_library_that_cannot_be_probed_at_all_is_an_error_with_its_path(objects: Path) -> None:
    with ExitStack() as stack:
        loader = LibbpfLoader()
        stack.callback(loader.close)
        loader.load(MapSizes(), Rung.SESSION)
        pipe, other = os.pipe()
        stack.callback(os.close, pipe)
        stack.callback(os.close, other)
        library = replace(open_library(Path("/bin/true"), "libcuda", stack), fd=pipe, path="/somewhere")
        point = AttachPoint(LAUNCH, "cuLaunchKernel", 0, PointKind.LAUNCH, True, 0)
        try:
            attachment = loader.attach(library, [point])
        except AttachError as error:
            assert error.path == "/somewhere"
        else:
            assert [refused.point for refused in attachment.refused] == [point]
            assert not attachment.links


def test_a_call_entered_before_the_attach_belongs_to_no_epoch(
    build: Build, objects: Path, workload: Workload
) -> None:
    workload.say("call", "wait", 1, 0xB10C)
    with ExitStack() as stack:
        probes: Probes = start_probes(build, Rung.MULTI, stack)
        workload.say("x")
        workload.wait("the end of a call that began unseen")
        assert probes.count(workload.pid, WAIT) == 0
        assert not probes.losses()
