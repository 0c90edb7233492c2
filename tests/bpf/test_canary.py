# SPDX-License-Identifier: Apache-2.0
"""One process first: a placement that crashes or changes a call is not used for that library, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.driver_library import (
    DIES_UNDER_A_PROBE,
    INTERNAL_STREAM_WAIT,
    LIES_UNDER_A_PROBE,
    build_driver,
    parse_driver,
)

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.coverage import LibraryCoverage
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.loader.base import AttachPoint, Rung
from hotstage.probes.trial.canary import CALLS
from hotstage.probes.trial.report import PlacementVerdict, TrialReport
from hotstage.probes.trial.subject import NAME
from hotstage.probes.trial.trials import LibraryTrials
from hotstage.simhost.build import lay_out

sys.path.insert(0, str(Path(__file__).parent))
from targets import Target, wait_until

pytestmark = pytest.mark.kernel

VERIFIED, REFUTED = PlacementVerdict.VERIFIED, PlacementVerdict.REFUTED
UNVERIFIED = PlacementVerdict.UNVERIFIED
Points = tuple[AttachPoint, ...]
HANGS = '__attribute__((constructor)) static void hang(void) { for (;;) __asm__ volatile(""); }'


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.end()


@pytest.fixture
def start_engine() -> Iterator[Callable[..., ProbeEngine]]:
    engines: list[ProbeEngine] = []

    def start(**settings: object) -> ProbeEngine:
        engines.append(ProbeEngine(ProbesConfig(xid=False, **settings), SystemClock()))  # type: ignore[arg-type]
        engines[-1].start()
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def library_of(engine: ProbeEngine, pid: int) -> LibraryCoverage | None:
    found = [
        lib
        for process in engine.coverage().processes
        if process.pid == pid
        for lib in process.libraries
        if lib.kind != "marks"  # which this process may have, and so its child until it executes its program
    ]
    return found[0] if found else None


def tried_in_time(
    parsed: ParsedLibrary, points: Points, rung: Rung = Rung.SESSION
) -> tuple[Points, TrialReport | None]:
    """A subject has 0.3 s, which a busy machine may not give it: then once more, five times at most."""
    for _ in range(5):
        trials = LibraryTrials(rung, SystemClock())
        try:
            tried, report = trials.try_out(parsed, points)
        finally:
            trials.close()
        if report is None or not (report.reason or "").endswith("in time"):
            break
    return tried, report


@pytest.mark.parametrize("rung", list(Rung))
def test_a_placement_that_works_is_verified_by_counted_calls(tmp_path: Path, rung: Rung) -> None:
    parsed, points = parse_driver(build_driver(tmp_path))
    try:
        tried, report = tried_in_time(parsed, points, rung)
    finally:
        os.close(parsed.library.fd)
    assert report is not None
    assert (report.placement, report.reason, report.calls) == (VERIFIED, None, CALLS)
    assert tried == points
    assert report.driver_version == 12040


@pytest.mark.parametrize("rung", list(Rung))
@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (DIES_UNDER_A_PROBE, "cuDriverGetVersion under a probe: it ended by SIGILL"),
        (LIES_UNDER_A_PROBE, "cuDriverGetVersion returned [7] under a probe and [0] without"),
    ],
    ids=["crash", "wrong value"],
)
def test_a_placement_that_harms_goes_back_to_the_symbols(
    tmp_path: Path, rung: Rung, version: str, reason: str
) -> None:
    parsed, points = parse_driver(build_driver(tmp_path, version=version))
    try:
        tried, report = tried_in_time(parsed, points, rung)
    finally:
        os.close(parsed.library.fd)
    assert report is not None
    assert (report.placement, report.reason) == (REFUTED, reason)
    assert all(point.offset == point.symbol_offset and not point.is_emulated for point in tried)
    assert [point.symbol for point in tried] == [point.symbol for point in points]


VERSIONS = {
    "libcudart.so.12": "int cudaRuntimeGetVersion(int *v) { @IF_PROBED@ *v = 12090; return 0; }"
    " int cudaDeviceSynchronize(void) { return 35; }",
    "libnccl.so.2": "int ncclGetVersion(int *v) { @IF_PROBED@ *v = 22907; return 0; }"
    " int ncclCommDestroy(void *c) { return 4; }",
    "libcudnn.so.9": "unsigned long cudnnGetVersion(void) { @IF_PROBED@ return 90700; }"
    " int cudnnBackendExecute(void *h, void *p, void *v) { return 1; }",
    "libavcodec.so.61": "unsigned avcodec_version(void) { @IF_PROBED@ return 4002660; }"
    " int avcodec_send_packet(void *c, void *p) { return 0; }",
}
"""By name, a harmless function that may notice a probe on its first byte, and one that is counted."""


def build_plain(folder: Path, name: str, if_probed: str) -> Path:
    symbol = VERSIONS[name].split("(")[0].split()[-1]
    is_probed = f"if (*(volatile unsigned char *)(void *){symbol} == 0xcc) {if_probed}"
    (folder / "plain.c").write_text(VERSIONS[name].replace("@IF_PROBED@", is_probed))
    command = ["gcc", "-O1", "-fno-omit-frame-pointer", "-fcf-protection=none", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", folder / name, folder / "plain.c"], check=True)
    return folder / name


@pytest.mark.parametrize("rung", [Rung.SESSION, Rung.PERF])
@pytest.mark.parametrize("name", VERSIONS)
def test_every_kind_with_a_harmless_function_is_tried_in_one_process_first(
    tmp_path: Path, name: str, rung: Rung
) -> None:
    found = {}
    for what, if_probed in (("well", ";"), ("dies", '__asm__("ud2");')):
        folder = tmp_path / what
        folder.mkdir()
        parsed, points = parse_driver(build_plain(folder, name, if_probed), name.split(".", maxsplit=1)[0])
        try:
            tried, report = tried_in_time(parsed, points, rung)
        finally:
            os.close(parsed.library.fd)
        assert points and report is not None
        found[what] = report.placement, report.calls, len(tried), report.reason
    assert found["well"] == (VERIFIED, CALLS, 1, None)
    assert found["dies"][:3] == (REFUTED, 0, 0)
    assert found["dies"][3] is not None and found["dies"][3].endswith("under a probe: it ended by SIGILL")


def test_a_refuted_runtime_is_not_probed_and_coverage_says_why(
    tmp_path: Path, target: Target, start_engine: Callable[..., ProbeEngine]
) -> None:
    target.open(build_plain(tmp_path, "libcudart.so.12", "return 7;"))
    engine = start_engine()
    library = library_of(engine, target.pid)
    assert library is not None and library.trial is not None and library.reason is not None
    assert (library.state, library.attached, library.trial.placement) == ("failed", 0, REFUTED)
    assert "cudaRuntimeGetVersion returned [7] under a probe and [0] without" in library.reason


def test_the_simulated_driver_is_verified_and_hands_out_exported_functions_only(tmp_path: Path) -> None:
    parsed, points = parse_driver(lay_out(tmp_path).libcuda)
    try:
        _, report = tried_in_time(parsed, points)
    finally:
        os.close(parsed.library.fd)
    assert report is not None and report.audit is not None
    assert (report.placement, report.audit.internal, report.audit.unprobed) == (VERIFIED, (), ())
    assert report.audit.answered > 100


def test_the_engine_shows_a_verified_library_and_counts_nothing_of_the_trial(
    tmp_path: Path, target: Target, start_engine: Callable[..., ProbeEngine]
) -> None:
    engine = start_engine()
    target.open(build_driver(tmp_path, look_up=INTERNAL_STREAM_WAIT))
    delay = wait_until(lambda: library_of(engine, target.pid) is not None, "the library is attached", 0.5)
    print(f"tried and attached after {delay * 1000:.0f} ms")
    library = library_of(engine, target.pid)
    assert library is not None and library.trial is not None
    assert (library.trial.placement, library.emulated) == (VERIFIED, 3)
    assert library.trial.audit is not None
    assert {name.split()[0] for name in library.trial.audit.internal} == {"cuStreamSynchronize"}
    target.call("cuLaunchKernel", 1009)
    coverage = engine.coverage()
    assert NAME not in {process.name for process in coverage.processes}
    counted = {name: call.counted for name, call in coverage.calls.by_pid[target.pid].items()}
    assert counted == {"cuLaunchKernel": 1009}


def test_the_engine_counts_a_refuted_library_at_its_symbols(
    tmp_path: Path, target: Target, start_engine: Callable[..., ProbeEngine]
) -> None:
    target.open(build_driver(tmp_path, version=DIES_UNDER_A_PROBE))
    engine = start_engine()
    library = library_of(engine, target.pid)
    assert library is not None and library.trial is not None
    assert (library.trial.placement, library.attached, library.emulated) == (REFUTED, 3, 0)
    target.call("cuLaunchKernel", 1009)
    assert engine.totals().by_pid[target.pid]["cuLaunchKernel"].counted == 1009


def test_a_library_that_hangs_when_it_is_loaded_is_attached_in_time_and_untried(
    tmp_path: Path, start_engine: Callable[..., ProbeEngine]
) -> None:
    library = build_driver(tmp_path, more=HANGS)
    engine = start_engine()
    stuck = subprocess.Popen([sys.executable, "-S", "-c", f"import ctypes; ctypes.CDLL({str(library)!r})"])
    try:
        wait_until(lambda: library_of(engine, stuck.pid) is not None, "it is attached", 0.6)
        found = library_of(engine, stuck.pid)
        assert found is not None and found.trial is not None
        assert (found.state, found.trial.placement) == ("attached", UNVERIFIED)
        assert found.trial.reason == "it did not answer in time"
    finally:
        stuck.kill()
        stuck.wait(10)


def test_the_off_switch_starts_no_process(
    tmp_path: Path, target: Target, start_engine: Callable[..., ProbeEngine]
) -> None:
    target.open(build_driver(tmp_path, version=DIES_UNDER_A_PROBE))
    engine = start_engine(canary=False)
    library = library_of(engine, target.pid)
    assert library is not None
    assert (library.trial, library.emulated) == (None, 3)
