# SPDX-License-Identifier: Apache-2.0
"""The second compiler: the same sources through bcc give the same counts, and every lack has its remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.errors import LoadError, PreflightError
from hotstage.probes.coverage import CallCount
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.loader import bcc_compiler
from hotstage.probes.loader.base import Loader, MapSizes, Rung
from hotstage.probes.loader.bcc import BccLoader
from hotstage.probes.loader.bcc_compiler import CompileLimits, Function, compile_with_bcc
from hotstage.probes.loader.bindings import BccBindings, find_bcc
from hotstage.probes.loader.libbpf import LibbpfLoader

sys.path.insert(0, str(Path(__file__).parent))
from targets import Target, build_library

pytestmark = pytest.mark.kernel

WORKLOAD = (("cuLaunchKernel", 1009), ("cuMemAlloc_v2", 503), ("cuStreamSynchronize", 251))
COUNTER = """
BPF_HASH(seen, u32, u64);
int count_one(struct pt_regs *ctx) { u32 zero = 0; seen.increment(zero); return 0; }
"""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    target = Target()
    target.open(build_library(tmp_path))
    yield target
    target.end()


def has_child() -> bool:
    """Whether a compiler of ours still runs."""
    command = ["pgrep", "-P", str(os.getpid()), "-f", "bcc_child"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def count_with(loader: Loader, target: Target) -> tuple[str, dict[str, CallCount], int]:
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock(), loader=loader)
    engine.start()
    try:
        if isinstance(loader, BccLoader):
            print(f"bcc compiled and handed over in {loader.compile_seconds:.2f} s")
            assert "bcc" not in sys.modules
            assert "libbcc" not in Path("/proc/self/maps").read_text()
            assert not has_child()
        for name, times in WORKLOAD:
            target.call(name, times)
        totals = engine.totals()
        return engine.rung, dict(totals.by_pid[target.pid]), totals.lost
    finally:
        engine.close()


def test_both_compilers_count_the_same_and_nothing_of_bcc_stays_in_this_process_or_on_the_host(
    target: Target,
) -> None:
    made = {name: CallCount(times, 0) for name, times in WORKLOAD}
    assert count_with(LibbpfLoader(), target) == ("S", made, 0)
    modules = sorted(path.name for path in Path("/lib/modules").iterdir())
    assert count_with(BccLoader(), target) == ("M", made, 0)
    assert sorted(path.name for path in Path("/lib/modules").iterdir()) == modules


def test_descriptors_do_not_leak_to_children_and_close_with_the_loader() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    compiled = compile_with_bcc(COUNTER, [Function("count_one")], ["seen"])
    fds = [*compiled.programs.values(), *compiled.maps.values()]
    assert len(fds) == 2
    assert not any(os.get_inheritable(fd) for fd in fds)
    compiled.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_missing_bcc_is_a_preflight_error_that_names_the_impostor(tmp_path: Path) -> None:
    (tmp_path / "bcc.py").write_text("")
    with pytest.raises(PreflightError, match="another project of that name") as error:
        compile_with_bcc(COUNTER, [], [], bindings=find_bcc([tmp_path]))
    assert "python3-bpfcc" in (error.value.remedy or "")


def test_an_impostor_on_the_path_does_not_get_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc" / "__init__.py").write_text("raise SystemError('the impostor was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    compile_with_bcc(COUNTER, [Function("count_one")], ["seen"]).close()


def test_missing_headers_are_a_preflight_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc_compiler, "find_headers", lambda: None)
    with pytest.raises(PreflightError, match="headers") as error:
        compile_with_bcc(COUNTER, [], [])
    assert "linux-headers" in (error.value.remedy or "")


def test_a_compile_error_carries_what_the_compiler_said() -> None:
    with pytest.raises(LoadError, match="no_such_type"):
        compile_with_bcc("int f(struct pt_regs *ctx) { no_such_type x; return 0; }", [Function("f")], [])


def test_a_refused_program_carries_its_name() -> None:
    with pytest.raises(LoadError, match="not_there"):
        compile_with_bcc(COUNTER, [Function("not_there")], [])


def test_an_unknown_map_is_named() -> None:
    with pytest.raises(LoadError, match="no such maps: nowhere"):
        compile_with_bcc(COUNTER, [Function("count_one")], ["nowhere"])


def test_a_tracepoint_that_no_driver_has_fails_cleanly() -> None:
    text = "TRACEPOINT_PROBE(nv_gpu, queue_submit) { return 0; }"
    with pytest.raises(LoadError):
        compile_with_bcc(text, [], [])


def test_a_compiler_that_hangs_is_given_up_and_killed(tmp_path: Path) -> None:
    package = tmp_path / "bcc"
    package.mkdir()
    (package / "__init__.py").write_text("import time; time.sleep(60)")
    with pytest.raises(LoadError, match=r"no answer within 0\.8 s"):
        compile_with_bcc(COUNTER, [], [], bindings=BccBindings(package, None, ()), limits=CompileLimits(0.8))
    assert not has_child()


def test_rung_s_is_refused_with_a_remedy() -> None:
    with pytest.raises(LoadError, match="rung S") as error:
        BccLoader().load(MapSizes(), Rung.SESSION)
    assert error.value.remedy == "--loader libbpf"
