# SPDX-License-Identifier: Apache-2.0
"""The wheels as files: all that runs need is inside, nothing of the machine that built them is."""

from __future__ import annotations

import hashlib
import platform
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email.parser import BytesParser
from pathlib import Path

import pytest
from support.packages import ROOT, make

from hotstage.simhost.build import LIBRARIES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NEEDED = (
    *(f"hotstage/probes/objects/{name}.bpf.o" for name in ("hotstage", "hotstage_nobtf", "xid", "bench")),
    *(f"hotstage/probes/objects/include/{path.name}" for path in (ROOT / "bpf/include").iterdir()),
    *(f"hotstage/probes/objects/{name}.bpf.c" for name in ("hotstage", "calls", "marks", "xid")),
    *(f"hotstage/simhost/libraries/{library.file}" for library in LIBRARIES),
)
"""What is compiled or copied for the wheel, and is in no checkout."""


def wheel_of(folder: Path, name: str) -> zipfile.ZipFile:
    (path,) = folder.glob(f"{name}-*_{platform.machine()}.whl")
    return zipfile.ZipFile(path)


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            yield name, wheel.read(name)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.whl")}


@pytest.mark.parametrize("needed", NEEDED)
def test_all_that_runs_need_is_inside(wheels: Path, needed: str):
    assert needed in wheel_of(wheels, "hotstage").namelist()


def test_every_file_of_the_packages_is_inside(wheels: Path):
    inside = set(wheel_of(wheels, "hotstage").namelist())
    roots = {"hotstage": ROOT / "agent/hotstage", "hotstage_explorer": ROOT / "dashboards/hotstage_explorer"}
    files = {
        f"{name}/{path.relative_to(root)}"
        for name, root in roots.items()
        for path in root.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".md")
    }
    assert files - inside == set()


def test_compiled_parts_give_the_wheels_their_platforms(wheels: Path):
    names = [path.name for path in wheels.glob("*.whl")]
    tags = {tuple(name.removesuffix(".whl").split("-")[2:]) for name in names}
    ours = [system for python, abi, system in tags if (python, abi) == ("py3", "none")]
    assert [system.rpartition("_2_")[0] for system in ours] == ["manylinux"]
    assert ours[0].endswith(f"_{platform.machine()}")
    assert tags - {("py3", "none", ours[0])} == {
        ("cp39", "abi3", f"manylinux2014_{machine}.manylinux_2_17_{machine}")
        for machine in ("x86_64", "aarch64")
    }


def test_the_licences_of_all_parts_are_inside(wheels: Path):
    inside = {Path(name).name for name in wheel_of(wheels, "hotstage").namelist() if "/licenses/" in name}
    assert inside == {"LICENSE", "NOTICE", "LICENSE.GPL-2.0", "LICENSE.BSD-3-Clause"}


def test_the_marks_bring_their_library_and_header_and_need_nothing(wheels: Path):
    wheel = wheel_of(wheels, "hotstage_marks")
    inside = set(wheel.namelist())
    needed = ("libhotstage_marks.so", "include/hotstage_marks.h", "libhotstage_nvtx.so", "nvtx_rules.txt")
    assert {f"hotstage_marks/{name}" for name in needed} <= inside
    assert {
        f"hotstage_marks/examples/{name}" for name in ("asyncio_server.py", "batch_loop.py", "server.cpp")
    } <= inside
    assert any(name.startswith("hotstage_marks/_native.") for name in inside)
    (metadata,) = (name for name in inside if name.endswith("/METADATA"))
    facts = BytesParser().parsebytes(wheel.read(metadata))
    assert (facts["Requires-Python"], facts.get_all("Requires-Dist")) == (">=3.9", None)


def test_nothing_tells_where_it_was_built(wheels: Path):
    places = [str(ROOT), f"{Path.home()}/", sys.prefix, sys.base_prefix, tempfile.gettempdir() + "/tmp"]
    telling = [
        (path.name, name, place)
        for path in wheels.glob("*.whl")
        for name, content in contents(path)
        for place in places
        if place.encode() in content
    ]
    assert telling == []


def test_wheels_built_elsewhere_from_the_source_archives_are_the_same_to_the_byte(
    wheels: Path, tmp_path: Path
):
    for path in wheels.glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / "sources", filter="data")
    make("wheels.py", "--into", str(tmp_path / "built"), *map(str, (tmp_path / "sources").iterdir()))
    assert digests(tmp_path / "built") == digests(wheels)
