# SPDX-License-Identifier: Apache-2.0
"""bcc or its impostors, LLVM in it, kernel headers, and clang where there is a source checkout.

Looks at files only: bcc is never imported and nothing is compiled.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import hotstage
from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.host import Host
from hotstage.probes.loader.bindings import INSTALL_BCC, INSTALL_HEADERS, find_bcc, find_headers

COMPILERS = Area.COMPILERS
_BCC_FEATURES = (
    "--loader bcc",
    "XID lines through the tracepoint's own layout",
    "tracepoints of GPU drivers, OOM kills",
    "programs of your own in probes.d",
)
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "lib64")
_LLVM = re.compile(rb"libLLVM[-.]?(?:so\.)?(\d+)")
_READ_BYTES = 4 << 20


def check_bcc(host: Host) -> Iterator[Finding]:
    bindings = find_bcc(host.search)
    data = {
        "package": str(bindings.package) if bindings.package else None,
        "version": bindings.version,
        "impostors": [str(path) for path in bindings.impostors],
    }
    if bindings.package is None:
        yield Finding(
            COMPILERS, "bcc", Status.WARN,
            "absent: no `--loader bcc`, no programs of your own; events of GPU drivers are counted, and"
            " nothing of what they say is known; XID lines come through libbpf",
            INSTALL_BCC, features=_BCC_FEATURES, data=data,
        )  # fmt: skip
    else:
        library = find_library(host, "libbcc.so.0")
        data |= {"library": str(library) if library else None, "llvm": _llvm_of(library) if library else None}
        version = bindings.version or "unknown version"
        if library is None:
            yield Finding(
                COMPILERS, "bcc", Status.WARN,
                f"{version} in {bindings.package}, but libbcc.so.0 is not found",
                "apt install libbpfcc (Debian, Ubuntu) or bcc (Fedora)", features=_BCC_FEATURES, data=data,
            )  # fmt: skip
        else:
            compiler = f", LLVM {data['llvm']}" if data["llvm"] else ""
            yield Finding(
                COMPILERS, "bcc", Status.OK, f"{version} in {bindings.package}{compiler}", data=data
            )
    for impostor in bindings.impostors:
        yield Finding(
            COMPILERS, "bcc impostor", Status.WARN,
            f"{impostor} is another project of that name; it is not used", "pip uninstall bcc",
            data={"path": str(impostor)},
        )  # fmt: skip


def check_headers(host: Host) -> Iterator[Finding]:
    headers = find_headers(host.root, host.release)
    if headers is None:
        yield Finding(
            COMPILERS, "kernel headers", Status.WARN, "none: bcc cannot compile", INSTALL_HEADERS,
            features=_BCC_FEATURES, data={"release": None, "build": None},
        )  # fmt: skip
        return
    data = {"release": headers.release, "build": str(headers.build) if headers.build else None}
    if not headers.is_exact:
        detail = f"those of {headers.release}, which suffice for these programs"
    elif headers.build is None:
        detail = "this kernel's, from /sys/kernel/kheaders.tar.xz"
    else:
        detail = "this kernel's"
    yield Finding(COMPILERS, "kernel headers", Status.OK, detail, data=data)


def check_clang(host: Host) -> Iterator[Finding]:
    """Only builders need one: the objects come compiled."""
    if checkout() is None:
        return
    clang = shutil.which("clang")
    yield Finding(
        COMPILERS, "clang", Status.OK if clang else Status.WARN, clang or "absent: bpf/ cannot be built here",
        None if clang else "apt install clang llvm", data={"path": clang},
    )  # fmt: skip


def checkout() -> Path | None:
    """The source tree that this package is run from; None for an installed one."""
    root = Path(hotstage.__file__).resolve().parents[2]
    return root if (root / "bpf" / "Makefile").exists() else None


def find_library(host: Host, name: str) -> Path | None:
    """A library in the usual folders of the linker; None where it is not there."""
    folders = (host.root / place for place in _LIBRARY_FOLDERS)
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _llvm_of(library: Path) -> str | None:
    """The LLVM that libbcc names among the libraries it needs; None when it holds its own."""
    try:
        with library.open("rb") as file:
            match = _LLVM.search(file.read(_READ_BYTES))
    except OSError:
        return None
    return match[1].decode() if match else None
