# SPDX-License-Identifier: Apache-2.0
"""Calls through ONNX Runtime's table of functions: found in the file, counted, seen while they last."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bpf.conftest import Probes, open_library
from tests.bpf.onnxruntime_caller import TableProgram, build_runtime
from tests.bpf.targets import covered_kinds, libraries_of, wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.onnxruntime import ONNX_RUNTIME
from hotstage.probes.catalogue.spec import Layer
from hotstage.probes.discovery.api_table import read_api_table
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.loader import links
from hotstage.probes.loader.base import AttachPoint, OpenLibrary

RUN, CREATE, RELEASE = 9, 7, 95
CALLS = {call.name: call.call_id for call in ONNX_RUNTIME.calls}


@pytest.fixture
def program() -> Iterator[TableProgram]:
    started = TableProgram()
    yield started
    started.close()


def points_of(library: OpenLibrary) -> tuple[AttachPoint, ...]:
    elf = read_elf(library.fd)
    table, functions, refused = read_api_table(library.fd, elf, ONNX_RUNTIME.calls)
    assert table.refusal is None
    elf = replace(elf, functions=functions)
    return plan(ParsedLibrary(library, elf, False, (), table, refused), LIBRARIES)[0]


def test_calls_through_the_table_are_counted_with_their_errors_and_seen_while_they_last(
    probes: Probes, program: TableProgram, tmp_path: Path
) -> None:
    path = build_runtime(tmp_path, "libtarget_onnxruntime.so")
    program.load(path)
    program.call(RUN, 3)  # before the attach: of no epoch
    with ExitStack() as stack:
        library = open_library(path, ONNX_RUNTIME.kind, stack)
        names = ("OrtRun", "OrtCreateSession", "OrtReleaseSession")
        attachment = probes.loader.attach(library, [p for p in points_of(library) if p.symbol in names])
        stack.callback(links.detach, attachment.links)
        assert not attachment.refused
        program.call(CREATE, 5)
        program.call(RUN, 101)
        program.call(RUN, 7, 0)
        program.call(RUN, 2, 2)
        program.call(RELEASE, 11)
        for name, count, errors in (
            ("OrtCreateSession", 5, 0),
            ("OrtRun", 110, 9),
            ("OrtReleaseSession", 11, 0),
        ):
            keys, stats = probes.rows(program.pid, CALLS[name])
            assert [int(stats[column].sum()) for column in ("count", "errors", "errors_oom")] == [
                count,
                errors,
                0,
            ]
            assert set(keys["layer"]) == {Layer.LIBRARY}
        assert probes.rows(program.pid, CALLS["OrtCreateSession"])[1]["total_ns"].sum() >= 5 * 100_000
        program.stick(RUN)
        in_call_of(probes, program.pid, CALLS["OrtRun"])


def in_call_of(probes: Probes, pid: int, call: int) -> None:
    wait_until(lambda: call in probes.threads(pid)["call"].tolist(), "a thread sits in the call")


@pytest.mark.parametrize("loader", ["libbpf", pytest.param("bcc", marks=pytest.mark.long)])
def test_a_library_that_is_there_and_one_that_comes_are_counted_from_the_attach_on(
    tmp_path: Path, program: TableProgram, loader: str
) -> None:
    early, late = (build_runtime(tmp_path / name, "libonnxruntime.so.1.24.0") for name in ("a", "b"))
    program.load(early)
    program.call(RUN, 13)
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False, loader=loader), SystemClock())  # type: ignore[arg-type]
    engine.start()
    other = TableProgram()
    try:
        (found,) = libraries_of(engine, program.pid)
        assert (found.kind, found.state, found.attached) == ("libonnxruntime", "attached", len(CALLS))
        assert found.api_table is not None and found.api_table.version == "1.24.0"
        fd = os.open(early, os.O_RDONLY)
        assert found.build_id == read_elf(fd).build_id != ""
        os.close(fd)
        program.call(RUN, 17)
        other.load(late)
        wait_until(lambda: "libonnxruntime" in covered_kinds(engine, other.pid), "it is attached", 2.0)
        other.call(RUN, 19)
        other.call(CREATE, 23)
        counted = {name: count.counted for name, count in engine.totals().other_layers["library"].items()}
        assert counted == {"OrtRun": 17 + 19, "OrtCreateSession": 23}
    finally:
        engine.close()
        other.close()


def test_a_forged_table_is_told_and_nothing_is_attached(tmp_path: Path, program: TableProgram) -> None:
    program.load(build_runtime(tmp_path, "libonnxruntime.so.1", "-DRUN_SLOT=(function)((char *)ort_run+1)"))
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())  # type: ignore[arg-type]
    engine.start()
    try:
        (found,) = libraries_of(engine, program.pid)
        assert (found.state, found.attached, found.since_ns) == ("failed", 0, None)
        assert found.reason is not None and "9 functions where its version has at least 412" in found.reason
    finally:
        engine.close()
