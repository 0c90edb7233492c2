# SPDX-License-Identifier: Apache-2.0
"""What doctor says of hosts that are made of a few files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.cli.doctor import exit_code, report
from hotstage.cli.doctor_checks import (
    Finding,
    Status,
    Surroundings,
    check_capabilities,
    check_compilers,
    check_kernel,
    check_nvml,
    check_tracepoints,
)

REAL_BCC = {
    "bcc/__init__.py": "",
    "bcc/libbcc.py": "",
    "bcc/table.py": "",
    "bcc/version.py": "__version__ = '0.31.0'",
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def at(root: Path, release: str = "6.18.1", search: tuple[Path, ...] = ()) -> Surroundings:
    return Surroundings(root, release, search)


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_a_modern_host_is_fine(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sys/kernel/btf/vmlinux": "",
            "sys/kernel/security/lockdown": "none [integrity] confidentiality",
            "sys/fs/cgroup/cgroup.controllers": "cpu",
        },
    )
    assert {finding.status for finding in check_kernel(at(tmp_path))} == {Status.OK}


def test_each_lack_of_the_kernel_is_named_with_its_remedy(tmp_path: Path) -> None:
    write(tmp_path, {"sys/kernel/security/lockdown": "none integrity [confidentiality]"})
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532000]")
    found = by_name(list(check_kernel(at(tmp_path, "5.10.0"))))
    assert found["version"].status is Status.FAIL
    assert found["lockdown"].status is Status.FAIL
    assert found["BTF"].status is Status.WARN
    assert found["cgroup v2"].status is Status.WARN
    assert found["process ids"].status is Status.WARN
    assert all(finding.remedy for finding in found.values())


@pytest.mark.parametrize(
    ("effective", "failed"),
    [
        (1 << 39 | 1 << 38 | 1 << 19 | 1 << 2 | 1 << 40, set()),
        (1 << 21 | 1 << 19 | 1 << 2, set()),
        (1 << 39 | 1 << 38, {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}),
        (0, {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}),
    ],
)
def test_missing_capabilities_are_told_from_those_that_admin_covers(
    tmp_path: Path, effective: int, failed: set[str]
) -> None:
    write(tmp_path, {"proc/self/status": f"Name:\tx\nCapEff:\t{effective:016x}\n"})
    findings = list(check_capabilities(at(tmp_path)))
    assert {f.name for f in findings if f.status is Status.FAIL} == failed
    assert all(f.is_permission for f in findings if f.status is Status.FAIL)


def test_the_real_bcc_is_told_from_the_impostor_before_it(tmp_path: Path) -> None:
    write(tmp_path / "venv", {"bcc/__init__.py": "", "bcc/main.py": ""})
    write(tmp_path / "dist", REAL_BCC)
    search = (tmp_path / "venv", tmp_path / "dist")
    found = by_name(list(check_compilers(at(tmp_path, search=search), None)))
    assert found["bcc"].status is Status.OK
    assert "0.31.0" in found["bcc"].detail
    assert found["bcc impostor"].status is Status.WARN
    assert str(tmp_path / "venv") in found["bcc impostor"].detail


def test_an_impostor_alone_is_no_bcc(tmp_path: Path) -> None:
    write(tmp_path / "venv", {"bcc.py": ""})
    found = by_name(list(check_compilers(at(tmp_path, search=(tmp_path / "venv",)), None)))
    assert found["bcc"].status is Status.WARN
    assert "python3-bpfcc" in (found["bcc"].remedy or "")
    assert "bcc impostor" in found


def test_own_headers_others_and_none_are_told_apart(tmp_path: Path) -> None:
    def headers() -> Finding:
        return by_name(list(check_compilers(at(tmp_path), None)))["kernel headers"]

    assert headers().status is Status.WARN
    write(tmp_path, {"lib/modules/6.1.0/build/include/x.h": "", "lib/modules/5.9.0/build/include/x.h": ""})
    assert headers().detail.startswith("those of 6.1.0")
    write(tmp_path, {"lib/modules/6.18.1/build/include/x.h": ""})
    assert headers().detail == "this kernel's"


def test_clang_matters_in_a_checkout_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "clang" not in by_name(list(check_compilers(at(tmp_path), None)))
    assert by_name(list(check_compilers(at(tmp_path), tmp_path)))["clang"].status is Status.WARN


def test_each_tracepoint_is_present_or_absent_with_what_it_gives() -> None:
    found = by_name(list(check_tracepoints(frozenset({"printk/console", "gpu_scheduler/drm_run_job"}))))
    assert found["queue_submit"].detail.startswith("present: gpu_scheduler:drm_run_job; gives work handed")
    assert "nv_gpu:queue_submit" in by_name(list(check_tracepoints(frozenset())))["queue_submit"].detail
    assert found["fences"].status is Status.ABSENT
    assert found["fences"].detail.startswith("none of dma_fence:dma_fence_signaled; would give")
    assert found["oom kills"].status is Status.WARN


def test_unreadable_tracefs_is_unknown_not_absent() -> None:
    (finding,) = check_tracepoints(None)
    assert (finding.status, finding.name) == (Status.WARN, "tracefs")


def test_a_library_of_another_driver_is_a_mismatch(tmp_path: Path) -> None:
    write(tmp_path, {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64  570.86.10  Thu\n"})
    lib = tmp_path / "usr/lib/x86_64-linux-gnu"
    write(lib, {"libnvidia-ml.so.550.163.01": ""})
    (lib / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.163.01")
    found = by_name(list(check_nvml(at(tmp_path), None)))
    assert found["driver"].detail == "NVIDIA 570.86.10"
    assert found["NVML"].status is Status.WARN
    assert "550.163.01" in found["NVML"].detail


def test_the_configured_place_of_nvml_is_the_only_one(tmp_path: Path) -> None:
    write(tmp_path, {"usr/lib/libnvidia-ml.so.1": ""})
    assert by_name(list(check_nvml(at(tmp_path), None)))["NVML"].status is Status.OK
    assert by_name(list(check_nvml(at(tmp_path), str(tmp_path / "opt"))))["NVML"].status is Status.WARN


OK, WARN = Finding("a", "b", Status.OK, ""), Finding("a", "b", Status.WARN, "")
FAIL, DENIED = Finding("a", "b", Status.FAIL, ""), Finding("a", "b", Status.FAIL, "", None, True)


@pytest.mark.parametrize(
    ("findings", "strict", "code"),
    [
        ([OK], False, 0),
        ([OK, WARN], False, 0),
        ([OK, WARN], True, 3),
        ([WARN, FAIL], True, 4),
        ([FAIL, DENIED], False, 5),
        ([OK], True, 0),
    ],
)
def test_exit_codes(findings: list[Finding], strict: bool, code: int) -> None:
    assert exit_code(findings, strict=strict) == code


def test_the_report_counts_and_keeps_every_finding() -> None:
    body = report([OK, WARN, WARN], 3)
    assert body["status"] == "degraded"
    assert body["counts"] == {"ok": 1, "absent": 0, "warn": 2, "fail": 0}
    assert body["exit_code"] == 3
    assert body["findings"][0] == {"area": "a", "name": "b", "status": "ok", "detail": "", "remedy": None}
