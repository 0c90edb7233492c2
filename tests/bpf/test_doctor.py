# SPDX-License-Identifier: Apache-2.0
"""`hotstage doctor` on this very host: with all rights, with fewer, and leaving nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hotstage.host.capabilities import FEATURES, LEAST, USUAL

sys.path.insert(0, str(Path(__file__).parent))
from targets import Target, build_library

pytestmark = pytest.mark.kernel

STRANGER = 12345
DEADLINE_SECONDS = 6.0


def with_only(*capabilities: str) -> list[str]:
    """A command that becomes the rest of the line: another user with exactly these capabilities."""
    names = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities)])
    sets = [f"--{kind}={names}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *sets]


def run_doctor(*options: str, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-m", "hotstage", "doctor", *options]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.fixture(scope="module")
def as_root() -> subprocess.CompletedProcess[str]:
    return run_doctor("--json")


def test_root_can_run_everything_here_within_six_seconds(as_root) -> None:
    assert as_root.returncode == 0, as_root.stdout
    found = findings(as_root)
    assert found["rung"]["detail"].startswith(("S:", "M:", "P:"))
    assert found["bcc"]["status"] == "ok"
    assert found["printk:console"]["detail"].startswith("present, attachable, used")
    assert found["nv_gpu:queue_submit"]["status"] == "absent"
    assert found["queue_submit"]["data"]["in_use"] == "launch calls"
    assert found["JIT"]["data"]["machine_code_bytes"] > 0
    assert not any(finding["status"] == "fail" for finding in found.values())
    assert json.loads(as_root.stdout)["seconds"] <= DEADLINE_SECONDS


def test_every_rung_is_tried_and_the_best_one_is_in_use(as_root) -> None:
    found = findings(as_root)
    works = [letter for letter in "SMP" if found[f"rung {letter}"]["data"]["works"]]
    assert works[0] == found["rung"]["data"]["rung"]
    assert found["memory"]["data"]["maps_bytes"] > 1 << 20


def test_tracefs_and_a_program_agree_on_what_is_present(as_root) -> None:
    """What tracefs lists takes a program by its name, and what it does not list takes none."""
    rows = [finding["data"] for finding in findings(as_root).values() if finding["area"] == "tracepoints"]
    events = [row for row in rows if "attached" in row]
    assert len(events) > 20
    assert all(row["attached"] is row["present"] for row in events)


GRANTS: dict[str, tuple[str, ...]] = {
    "none": (),
    "following mappings only": ("CAP_PERFMON",),
    "BPF without looking": ("CAP_BPF", "CAP_PERFMON"),
    "least": LEAST,
    "usual": USUAL,
    "admin alone": ("CAP_SYS_ADMIN",),
}


@pytest.fixture(scope="module")
def victim() -> Iterator[tuple[int, str, str]]:
    """A stranger's process with a library in a folder closed to others, and with one that was deleted."""
    with tempfile.TemporaryDirectory(prefix="hotstage-doctor-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        closed = build_library(folder / "closed")
        deleted = build_library(folder / "deleted", salt="deleted")
        for path in (closed.parent, closed, deleted.parent, deleted):
            os.chown(path, STRANGER, STRANGER)
        closed.parent.chmod(0o700)
        target = Target(("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--"))
        try:
            target.open(closed)
            target.open(deleted)
            deleted.unlink()
            yield target.pid, str(closed), str(deleted)
        finally:
            target.end()


@pytest.mark.parametrize("granted", GRANTS)
def test_what_doctor_says_of_features_is_true(victim, granted: str) -> None:
    """Each verdict, against the same act by the agent's own code under the same rights."""
    prefix = with_only(*GRANTS[granted])
    program = Path(__file__).with_name("feature_truth.py")
    command = [*prefix, sys.executable, str(program), *map(str, victim)]
    truth = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    found = findings(run_doctor("--json", "--only", "privileges", prefix=prefix))
    assert {feature.name: found[feature.name]["data"]["works"] for feature in FEATURES} == truth


def test_the_usual_rights_suffice_for_all_but_old_kernels(victim) -> None:
    found = findings(run_doctor("--json", "--only", "privileges", prefix=with_only(*USUAL)))
    assert {name for name, finding in found.items() if finding["status"] in ("fail", "warn")} == set()
    assert found["CAP_SYS_ADMIN"]["detail"].startswith("not held, and not needed on this kernel")


def test_a_user_without_rights_gets_exit_5_and_what_to_grant() -> None:
    done = run_doctor("--json", prefix=with_only())
    assert done.returncode == 5
    found = findings(done)
    assert found["CAP_BPF"]["status"] == "fail"
    assert found["rung"]["status"] == "fail"
    assert "CAP_BPF" in found["rung"]["remedy"]
    assert found["printk:console"]["status"] == "unknown"
    assert found["processes"]["data"]["refused"] > 0
    assert json.loads(done.stdout)["seconds"] <= DEADLINE_SECONDS


def test_strict_is_3_when_something_is_less_than_fine(as_root) -> None:
    counts = json.loads(as_root.stdout)["counts"]
    done = run_doctor("--json", "--strict")
    assert done.returncode == (3 if counts["warn"] or counts["unknown"] else 0)


def test_without_a_terminal_there_are_plain_lines_and_no_progress() -> None:
    done = run_doctor()
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""
    *lines, verdict = done.stdout.splitlines()
    assert all(line.split("\t")[0] in ("ok", "–", "warn", "FAIL", "?") for line in lines)
    assert verdict.startswith("hotstage runs here")


def test_nothing_is_left_behind() -> None:
    """No mount on the host, no process of the session, no program of the trials."""
    before = mounts()
    command = [sys.executable, "-m", "hotstage", "doctor", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as doctor:
        assert doctor.wait(30) == 0
    assert mounts() == before
    assert [pid for pid in session_members(doctor.pid) if pid != doctor.pid] == []
    shown = subprocess.run(["bpftool", "prog", "list"], capture_output=True, text=True, check=True).stdout
    assert "hotstage_trial" not in shown


def mounts() -> list[str]:
    """Of this host, but for those that tests beside this one make in folders of theirs."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "/pytest-of-" not in line]


def session_members(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append(int(stat.parent.name))
    return found
