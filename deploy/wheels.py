#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds both distributions into dist/: a source archive each, and wheels made from that archive.

`hotstage` has a wheel for this machine. `hotstage-marks` has one for x86-64 and one for arm64, each for every
Python from 3.9 on (the stable ABI): the other machine's is compiled by a cross compiler, where there is one.
Its headers are this machine's; what the stable ABI uses of them is the same on both, which are 64-bit
little-endian.

Two builds of one commit are the same to the byte: times come from SOURCE_DATE_EPOCH, else from the commit.
A wheel's platform is the oldest C library that its compiled parts run on (PEP 600), as they say themselves.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = (ROOT, ROOT / "agent")
OLDEST_GLIBC = (2, 17)
"""What a wheel without any compiled need would be tagged with: manylinux2014."""
COMPILED = ("_native.abi3.so", "libhotstage_marks.so", "libhotstage_nvtx.so")
"""What a wheel of the marks must not lack; installed from source without a compiler, it may."""
CROSS = {"x86_64": "x86_64-linux-gnu-gcc", "aarch64": "aarch64-linux-gnu-gcc"}
_FIRST_ZIP_TIME = 315_532_800
"""1980: a zip archive cannot hold an earlier one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder of the results")
    parser.add_argument(
        "projects", nargs="*", type=Path, help="source trees (default: both of this checkout)"
    )
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    os.environ["SOURCE_DATE_EPOCH"] = str(source_epoch())
    for project in arguments.projects or PROJECTS:
        for built in build(project, arguments.into):
            print(built)
    for machine in CROSS.keys() - {platform.machine()}:
        for archive in arguments.into.glob("hotstage_marks-*.tar.gz"):
            print(build_for(machine, archive, arguments.into) or f"none for {machine}: no {CROSS[machine]}")
    return 0


def source_epoch() -> int:
    """Seconds since 1970 that all archives carry: SOURCE_DATE_EPOCH, the commit's time, or 1980."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return max(int(given), _FIRST_ZIP_TIME)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return _FIRST_ZIP_TIME


def build(project: Path, into: Path) -> list[Path]:
    """Source archive and wheel of one project; earlier ones of the same name are replaced."""
    with tempfile.TemporaryDirectory() as scratch:
        run_build(project, Path(scratch))
        (archive,) = Path(scratch).glob("*.tar.gz")
        (wheel,) = Path(scratch).glob("*.whl")
        settle(archive)
        wheel = tag(wheel, platform.machine())
        return [Path(shutil.move(each, into / each.name)) for each in (archive, wheel)]


def build_for(machine: str, archive: Path, into: Path) -> Path | None:
    """The marks' wheel for another machine, from their source archive; None without its compiler."""
    if shutil.which(CROSS[machine]) is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(archive) as sources:
            sources.extractall(f"{scratch}/sources", filter="data")
        (project,) = Path(scratch, "sources").iterdir()
        environment = {
            "CC": CROSS[machine],
            "LDSHARED": f"{CROSS[machine]} -shared",
            "CFLAGS": f"-I{headers(machine, Path(scratch))}",
            "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        }
        run_build(project, Path(scratch), "--wheel", environment=environment)
        (wheel,) = Path(scratch).glob("*.whl")
        wheel = tag(wheel, machine)
        return Path(shutil.move(wheel, into / wheel.name))


def headers(machine: str, scratch: Path) -> Path:
    """Where Debian's `Python.h` finds a `pyconfig.h` for the machine: this machine's, it has no other."""
    include = Path(sysconfig.get_path("include"))
    own = Path(f"/usr/include/{platform.machine()}-linux-gnu", include.name)
    folder = scratch / "include" / f"{machine}-linux-gnu"
    folder.mkdir(parents=True)
    (folder / include.name).symlink_to(own if own.is_dir() else include)
    return folder.parent


def run_build(
    project: Path, into: Path, *flags: str, environment: Mapping[str, str] = MappingProxyType({})
) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *flags, "--outdir", str(into), str(project)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{project}: the build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    for wheel in into.glob("hotstage_marks-*.whl"):
        names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist()}
        if missing := set(COMPILED) - names:
            raise SystemExit(f"{wheel.name}: not compiled: {missing}:\n{done.stderr[-2000:]}")


def settle(archive: Path) -> None:
    """Give every member the one time, nobody's name and plain modes: what differs between two builds."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    packed = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as zipped:
        zipped.write(packed.getvalue())


def tag(wheel: Path, machine: str) -> Path:
    """Replace `linux_ARCH` by the manylinux tags that its libraries allow."""
    major, minor = glibc_needed(wheel)
    name = f"manylinux_{major}_{minor}_{machine}"
    if (major, minor) == OLDEST_GLIBC:  # by its older name, too, for the pip of an older Python
        name += f".manylinux2014_{machine}"
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", name, str(wheel)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return wheel.parent / done.stdout.strip().splitlines()[-1]


def glibc_needed(wheel: Path) -> tuple[int, int]:
    """The newest version of a glibc symbol that any library of the wheel asks for."""
    needed = {OLDEST_GLIBC}
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.search(r"\.so(\.|$)", name):
                command = ["readelf", "--version-info", "--wide", archive.extract(name, scratch)]
                text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                needed |= {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", text)}
    return max(needed)


if __name__ == "__main__":
    sys.exit(main())
