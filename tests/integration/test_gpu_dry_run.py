# SPDX-License-Identifier: Apache-2.0
"""`tests/gpu/run.sh` without a GPU: every stage on the simulated libraries, as on a real host."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

GPU = Path(__file__).resolve().parents[1] / "gpu"
SCHEMA = json.loads((GPU / "report.schema.json").read_text(encoding="utf-8"))
STAGES = ["coverage", "counts", "addresses", "marks", "overhead", "devices"]
NEEDS_A_GPU = {
    ("counts", "driver calls against CUPTI"),
    ("counts", "PyTorch's calls"),
    ("addresses", "what PyTorch obtains"),
    ("marks", "a pipeline in PyTorch"),
    ("overhead", "tokens per second"),
    ("devices", "readings under load"),
    ("coverage", "some symbols could not be used here"),
}
"""The last: the simulated driver makes no contexts but the primary ones."""

FAKE_CUPTI = r"""
#include <stdint.h>
#include <string.h>
struct data { int site; const char *name; };
typedef void (*callback)(void *, int, uint32_t, const struct data *);
static callback subscribed;
int cuptiSubscribe(void **handle, callback function, void *user)
{ (void)user; *handle = &subscribed; subscribed = function; return 0; }
static void call(uint32_t id, const char *name)
{ struct data enter = {0, name}, leave = {1, name};
  subscribed(0, 1, id, &enter); subscribed(0, 1, id, &leave); subscribed(0, 2, id, &enter); }
int cuptiEnableDomain(uint32_t enable, void *handle, int domain)
{ if (!enable || handle != &subscribed || domain != 1) return 1;
  for (int i = 0; i < 7; i++) call(307, "cuLaunchKernel");
  for (int i = 0; i < 3; i++) call(243, "cuMemAlloc_v2");
  call(5000, "cuBeyond"); return 0; }
"""


def run(out: Path, *arguments: str, **environment: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and standard error of one dry run; nothing of it may be left."""
    scratch = out.parent / "tmp"
    scratch.mkdir()
    done = subprocess.run(
        [str(GPU / "run.sh"), "--dry-run", "--out", str(out), *arguments],
        env={**os.environ, "TMPDIR": str(scratch), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert list(scratch.iterdir()) == [], done.stderr
    assert processes_in(str(scratch)) == []
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    jsonschema.validate(report, SCHEMA)
    assert [stage["name"] for stage in report["stages"]] == STAGES
    return done.returncode, report, done.stderr


def processes_in(directory: str) -> list[str]:
    """Processes that name the run's directory: those that outlived it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "environ").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"TMPDIR={directory}" in command:
            found.append(command)
    return found


def checks(report: dict[str, Any], outcome: str) -> set[tuple[str, str]]:
    return {
        (stage["name"], check["name"])
        for stage in report["stages"]
        for check in stage["checks"]
        if check["outcome"] == outcome
    }


def table(report: dict[str, Any], stage: str, name: str) -> Any:
    return next(each for each in report["stages"] if each["name"] == stage)["tables"][name]


@pytest.mark.kernel
@pytest.mark.long
@pytest.mark.slow
def test_every_stage_passes_and_names_what_needs_a_gpu(tmp_path: Path) -> None:
    code, report, said = run(tmp_path / "out")
    assert checks(report, "failed") == set(), said
    assert checks(report, "not_run") == NEEDS_A_GPU
    assert code == report["exit_code"] == 3
    assert report["host"]["gpu"] == "Simulated GPU 80GB"
    calls = {row["call"]: row for row in table(report, "counts", "calls: driver")}
    assert calls["cuLaunchKernel"]["made"] == calls["cuLaunchKernel"]["counted"] > 4000
    fired = table(report, "coverage", "fired")
    assert len(fired) > 40
    assert all(row["made"] == row["counted"] > 0 for row in fired), fired
    assert all(row["probed"] for row in table(report, "addresses", "obtained"))
    stages = {(row["stage"], row["modality"]) for row in table(report, "marks", "stages")}
    assert {("vision_encode", "image"), ("audio_encode", "audio"), ("llm_decode", "text")} <= stages
    assert "DRY RUN" in (tmp_path / "out" / "summary.txt").read_text(encoding="utf-8")


@pytest.mark.kernel
def test_an_agent_that_does_not_start_fails_its_stages_and_no_others(tmp_path: Path) -> None:
    code, report, _ = run(tmp_path / "out", HOTSTAGE_PROBES_LOADER="libbpf", HOTSTAGE_PROBES_CALL_KEYS="0")
    assert code == report["exit_code"] == 1
    ended = {stage for stage, check in checks(report, "failed") if check == "the stage came to its end"}
    assert ended == {"coverage", "counts", "marks", "overhead"}
    passed = {stage["name"] for stage in report["stages"] if stage["outcome"] == "passed"}
    assert passed == {"addresses", "devices"}


def test_a_run_without_time_says_so_for_every_stage(tmp_path: Path) -> None:
    code, report, _ = run(tmp_path / "out", "--seconds", "1")
    assert code == report["exit_code"] == 3
    assert checks(report, "not_run") == {(stage, "the stage") for stage in STAGES}
    assert all(stage["seconds"] is None for stage in report["stages"])


def test_a_wrong_option_is_a_usage_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(GPU / "run.sh"), "--dry"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--dry-run" in done.stderr


def test_the_injected_library_counts_each_entry_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti, counts = tmp_path / "libcupti.so", tmp_path / "libcounts.so"
    (tmp_path / "cupti.c").write_text(FAKE_CUPTI)
    for source, library in ((tmp_path / "cupti.c", cupti), (GPU / "native" / "cupti_counts.c", counts)):
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    code = (
        "import ctypes, sys\n"
        "library = ctypes.CDLL(sys.argv[1])\n"
        "assert library.InitializeInjection() == 1 and library.hotstage_cupti_write() == 0\n"
    )
    environment = {"HOTSTAGE_CUPTI_LIBRARY": str(cupti), "HOTSTAGE_CUPTI_COUNTS": str(tmp_path / "counts")}
    subprocess.run(["python3", "-c", code, counts], env={**os.environ, **environment}, check=True, timeout=60)
    assert (tmp_path / "counts").read_text().splitlines() == [
        "#status 0",
        "#beyond 1",
        "cuMemAlloc_v2 3",
        "cuLaunchKernel 7",
    ]
    monkeypatch.setenv("HOTSTAGE_CUPTI_COUNTS", str(tmp_path / "absent"))
    monkeypatch.setenv("HOTSTAGE_CUPTI_LIBRARY", str(tmp_path / "none.so"))
    alone = ctypes.CDLL(str(counts))
    assert alone.InitializeInjection() == 1
    assert alone.hotstage_cupti_write() == 0
    assert (tmp_path / "absent").read_text().splitlines()[0] == "#status -1"
