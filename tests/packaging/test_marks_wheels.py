# SPDX-License-Identifier: Apache-2.0
"""The marks' wheels for x86-64 and arm64: what the tags promise is so, and each is tried, or emulated."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PROGRAM = Path(__file__).with_name("marks_program.c")
LIBRARIES = ("_native.abi3.so", "libhotstage_marks.so", "libhotstage_nvtx.so")
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
NOP_AND_RETURN = {"x86_64": bytes.fromhex("90c3"), "aarch64": bytes.fromhex("1f2003d5c0035fd6")}
POINTS = 11
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
"""Where a thread's own variables are found; a part of the C library."""
SMOKE = """
import sys
import hotstage_marks as marks
assert marks.is_native
with marks.request("r-1", digest=marks.digest(b"abc")) as request:
    with marks.stage("my_reranker", modality="image", tokens=3) as stage:
        stage.tokens = 4
    with marks.batch([(request, "llm_decode", 1)]), marks.span("queue"):
        marks.tokens(3)
    assert marks.current_request() is request and request.digest == "44bc2cf5ad770999"
assert marks.current_request() is None
assert marks.statistics()["stages"] == {"my_reranker": 32}
assert marks.embedding(memoryview(b"1234").cast("f"), request="r-1") is marks.is_watched()
"""


@pytest.fixture(scope="session", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def unpacked(wheels: Path, machine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's folder of the wheel for that machine."""
    (wheel,) = wheels.glob(f"hotstage_marks-*-cp39-abi3-*_{machine}.whl")
    site = tmp_path_factory.mktemp(f"site_{machine}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site / "hotstage_marks"


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, unpacked: Path) -> Iterator[ELFFile]:
    with (unpacked / str(request.param)).open("rb") as stream:
        yield ELFFile(stream)


def test_each_library_is_for_the_machine_of_its_wheel(library: ELFFile, machine: str):
    assert library["e_machine"] == MACHINES[machine]


def test_nothing_is_needed_but_the_c_library(library: ELFFile):
    tags = library.get_section_by_name(".dynamic").iter_tags()
    needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
    assert needed - LOADERS <= {"libc.so.6", "libhotstage_marks.so"}


def test_the_c_library_may_be_as_old_as_the_tag_says(library: ELFFile):
    (section,) = (each for each in library.iter_sections() if isinstance(each, GNUVerNeedSection))
    named = {version.name for _, versions in section.iter_versions() for version in versions}
    found = {tuple(map(int, re.findall(r"\d+", name)))[:2] for name in named if name.startswith("GLIBC_")}
    assert found
    assert max(found) <= (2, 17)
    assert all(name.startswith("GLIBC_") for name in named)


def test_every_probe_point_is_a_nop_and_a_return(unpacked: Path, machine: str):
    code = NOP_AND_RETURN[machine]
    with (unpacked / "libhotstage_marks.so").open("rb") as stream:
        elf = ELFFile(stream)
        points = {
            symbol.name: next(iter(elf.address_offsets(symbol["st_value"], len(code))))
            for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
            if symbol.name.startswith("hotstage_mark_")
        }
        assert len(points) == POINTS
        for name, offset in points.items():
            stream.seek(offset)
            assert (name, stream.read(len(code))) == (name, code)


def test_the_library_works_on_its_machine(unpacked: Path, machine: str, tmp_path: Path):
    is_own = machine == platform.machine()
    compiler = "gcc" if is_own else f"{machine.replace('_', '-')}-linux-gnu-gcc"
    if shutil.which(compiler) is None:
        pytest.fail(f"{compiler} is missing: `make setup-tests` installs it")
    program = tmp_path / "program"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{unpacked / 'include'}"]
    link = [f"-L{unpacked}", "-lhotstage_marks", f"-Wl,-rpath,{unpacked}"]
    subprocess.run([compiler, *flags, PROGRAM, *link, "-o", program], check=True, timeout=60)
    emulator = [] if is_own else [f"qemu-{machine}", "-L", f"/usr/{machine.replace('_', '-')}-linux-gnu"]
    done = subprocess.run([*emulator, program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr


def interpreters() -> list[str]:
    """Every CPython from 3.9 on that this machine has, this one included."""
    found = {sys.executable: sys.executable}
    for minor in range(9, 20):
        homes = [
            *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin"),
            Path("/usr/bin"),
            Path("/usr/local/bin"),
        ]
        for home in homes:
            if (home / f"python3.{minor}").exists():
                found.setdefault(f"3.{minor}", str(home / f"python3.{minor}"))
    return list(found.values())


@pytest.mark.parametrize("python", interpreters())
def test_one_wheel_serves_every_python(wheels: Path, tmp_path: Path, python: str):
    (wheel,) = wheels.glob(f"hotstage_marks-*-cp39-abi3-*_{platform.machine()}.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    command = [python, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{SMOKE}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
