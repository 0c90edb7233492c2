# SPDX-License-Identifier: Apache-2.0
"""`hotstage doctor` on this very host, with and without rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kernel

WITHOUT_RIGHTS = ("setpriv", "--reuid=65534", "--clear-groups")


def run_doctor(*options: str, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-m", "hotstage", "doctor", *options]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_root_can_run_everything_here() -> None:
    done = run_doctor("--json")
    assert done.returncode == 0, done.stdout
    found = findings(done)
    assert found["rung"]["detail"].startswith(("S:", "M:", "P:"))
    assert found["bcc"]["status"] == "ok"
    assert found["kernel log"]["detail"].startswith("present: printk:console")
    assert "nv_gpu:queue_submit" in found["queue_submit"]["detail"]
    assert found["new libraries"]["status"] == "ok"
    assert not any(finding["status"] == "fail" for finding in found.values())


def test_a_user_without_rights_gets_exit_5_and_what_to_grant() -> None:
    done = run_doctor("--json", prefix=WITHOUT_RIGHTS)
    assert done.returncode == 5
    found = findings(done)
    assert found["CAP_BPF"]["status"] == "fail"
    assert found["rung"]["status"] == "fail"
    assert "CAP_BPF" in found["rung"]["remedy"]


def test_strict_is_3_when_something_is_less_than_fine() -> None:
    body = json.loads(run_doctor("--json").stdout)
    done = run_doctor("--json", "--strict")
    assert done.returncode == (3 if body["counts"]["warn"] else 0)


def test_without_a_terminal_there_are_plain_lines() -> None:
    done = run_doctor()
    assert "\x1b" not in done.stdout
    *findings, verdict = done.stdout.splitlines()
    assert all(line.split("\t")[0] in ("ok", "–", "warn", "FAIL") for line in findings)
    assert verdict.startswith("hotstage runs here")


def test_looking_at_tracepoints_mounts_nothing_on_the_host() -> None:
    def mounted() -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line for line in lines if "tracefs" in line]

    before = mounted()
    run_doctor()
    assert mounted() == before
