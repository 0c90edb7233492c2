# SPDX-License-Identifier: Apache-2.0
"""bcc, its impostors and kernel headers, told apart by their files."""

from __future__ import annotations

from hotstage.cli.doctor import compilers
from hotstage.cli.doctor.compilers import check_bcc, check_clang, check_headers, checkout
from hotstage.cli.doctor.finding import Status

REAL_BCC = {
    "dist/bcc/__init__.py": "",
    "dist/bcc/libbcc.py": "",
    "dist/bcc/table.py": "",
    "dist/bcc/version.py": "__version__ = '0.31.0'",
}
LIBBCC = "usr/lib/x86_64-linux-gnu/libbcc.so.0"


def test_the_real_bcc_is_told_from_the_impostor_before_it(host, by_name):
    host.write(
        {
            **REAL_BCC,
            LIBBCC: b"\x7fELF\0libLLVM-14.so.1\0",
            "venv/bcc/__init__.py": "",
            "venv/bcc/main.py": "",
        }
    )
    host.search = (host.root / "venv", host.root / "dist")
    found = by_name(check_bcc(host))
    assert found["bcc"].status is Status.OK
    assert found["bcc"].detail.startswith("0.31.0 in ")
    assert found["bcc"].data["llvm"] == "14"
    assert found["bcc impostor"].data["path"] == str(host.root / "venv/bcc")


def test_newer_names_of_llvm_are_read_as_well(host, by_name):
    host.write({**REAL_BCC, LIBBCC: b"libLLVM.so.19.1\0"})
    host.search = (host.root / "dist",)
    assert by_name(check_bcc(host))["bcc"].data["llvm"] == "19"


def test_bindings_without_their_library_are_a_lack(host, by_name):
    host.write(REAL_BCC).search = (host.root / "dist",)
    found = by_name(check_bcc(host))["bcc"]
    assert found.status is Status.WARN
    assert "libbpfcc" in (found.remedy or "")


def test_an_impostor_alone_is_no_bcc(host, by_name):
    host.write({"venv/bcc.py": ""}).search = (host.root / "venv",)
    found = by_name(check_bcc(host))
    assert found["bcc"].status is Status.WARN
    assert "python3-bpfcc" in (found["bcc"].remedy or "")
    assert "bcc impostor" in found


def test_own_headers_others_packed_ones_and_none_are_told_apart(host):
    (finding,) = check_headers(host)
    assert finding.status is Status.WARN
    host.write({"lib/modules/6.1.0/build/include/x.h": "", "lib/modules/5.9.0/build/include/x.h": ""})
    (finding,) = check_headers(host)
    assert finding.detail.startswith("those of 6.1.0")
    (finding,) = check_headers(host.write({"sys/kernel/kheaders.tar.xz": b""}))
    assert finding.detail == "this kernel's, from /sys/kernel/kheaders.tar.xz"
    (finding,) = check_headers(host.write({"lib/modules/6.18.1/build/include/x.h": ""}))
    assert finding.detail == "this kernel's"


def test_clang_matters_in_a_checkout_only(host, monkeypatch):
    assert checkout() is not None
    monkeypatch.setenv("PATH", str(host.root))
    (finding,) = check_clang(host)
    assert finding.status is Status.WARN
    monkeypatch.setattr(compilers, "checkout", lambda: None)
    assert list(check_clang(host)) == []
