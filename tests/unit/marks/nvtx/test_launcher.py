# SPDX-License-Identifier: Apache-2.0
"""`python -m hotstage_marks.nvtx`: one variable for one command, and yielding to whoever was there before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotstage_marks.nvtx import LIBRARY, VARIABLE, injected, reason_to_yield

SHOW = [sys.executable, "-c", f"import os; print(os.environ.get({VARIABLE!r}))"]


def launch(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-m", "hotstage_marks.nvtx", *map(str, arguments)]
    environment |= variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)


def test_the_command_runs_with_the_variable_and_its_own_status():
    done = launch(*SHOW)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (str(LIBRARY), "", 0)
    assert launch("sh", "-c", "exit 41").returncode == 41


@pytest.mark.parametrize("other", ["/opt/nvidia/nsight-systems/libToolsInjection64.so", "./."])
def test_another_injection_stays_and_it_is_said(other: str):
    done = launch(*SHOW, **{VARIABLE: other})
    assert (done.stdout.strip(), done.returncode) == (other, 0)
    assert f"do not become stages: {VARIABLE}" in done.stderr
    assert other in done.stderr
    refused = launch("--print", **{VARIABLE: other})
    assert (refused.stdout, refused.returncode) == ("", 1)


def test_our_own_library_by_another_path_is_no_other_injection(tmp_path: Path):
    link = tmp_path / "link.so"
    link.symlink_to(LIBRARY)
    assert reason_to_yield({VARIABLE: str(link)}) is None
    assert reason_to_yield({VARIABLE: ""}, tmp_path) is None


@pytest.mark.parametrize("place", ["nvtx-cuda.yaml", "user.0/nvtx-cuda.yaml"])
def test_a_driver_wide_injection_is_not_displaced(tmp_path: Path, place: str):
    assert reason_to_yield({}, tmp_path) is None
    path = tmp_path / "run/nvidia/nvtx" / place
    path.parent.mkdir(parents=True)
    path.touch()
    environment = {"XDG_RUNTIME_DIR": "/run/nvidia/nvtx/user.0"}
    if os.geteuid() == 0 or place == "nvtx-cuda.yaml":
        assert "driver" in str(reason_to_yield(environment, tmp_path))


def test_printing_gives_a_line_for_a_unit_or_a_container():
    assert launch("--print").stdout == f"{VARIABLE}={LIBRARY}\n"
    assert injected({"A": "1"}) == {"A": "1", VARIABLE: str(LIBRARY)}


def test_wrong_usage_is_told_apart_from_a_command_that_is_not_there():
    assert launch().returncode == 2
    assert launch("--explain", "only one").returncode == 2
    missing = launch("/nowhere/server")
    assert (missing.returncode, missing.stderr.strip()) == (
        127,
        "hotstage-marks: /nowhere/server: No such file or directory",
    )
