#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds both distributions into dist/: a source archive each, and a wheel made from that archive.

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
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = (ROOT, ROOT / "agent")
OLDEST_GLIBC = (2, 17)
"""What a wheel without any compiled need would be tagged with: manylinux2014."""
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
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", scratch, str(project)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{project}: the build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        (archive,) = Path(scratch).glob("*.tar.gz")
        (wheel,) = Path(scratch).glob("*.whl")
        settle(archive)
        wheel = tag(wheel)
        return [Path(shutil.move(each, into / each.name)) for each in (archive, wheel)]


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


def tag(wheel: Path) -> Path:
    """Replace `linux_ARCH` by the manylinux tag that its libraries allow."""
    major, minor = glibc_needed(wheel)
    name = f"manylinux_{major}_{minor}_{platform.machine()}"
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
