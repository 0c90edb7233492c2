# SPDX-License-Identifier: Apache-2.0
"""The Debian package as a file: what dpkg says of it; nothing in it points to the machine of the build."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from support.packages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LIBRARY = f"opt/hotstage/lib/python3.{sys.version_info.minor}/site-packages"


@pytest.fixture(scope="module")
def control(deb: Path) -> dict[str, str]:
    text = dpkg("--field", deb)
    return dict(re.findall(r"^([A-Z][\w-]+): (.*)$", text, re.MULTILINE))


@pytest.fixture(scope="module")
def listing(deb: Path) -> dict[str, tuple[str, str]]:
    """Path → mode and owner."""
    lines = (line.split(maxsplit=5) for line in dpkg("--contents", deb).splitlines())
    return {path.split(" -> ")[0].removeprefix("./"): (mode, owner) for mode, owner, *_, path in lines}


@pytest.fixture(scope="module")
def unpacked(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    dpkg("--extract", deb, folder)
    return folder


def dpkg(*arguments: object) -> str:
    return subprocess.run(
        ["dpkg-deb", *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


def test_it_depends_on_the_python_it_was_built_for_and_on_the_distributions_bcc(control: dict[str, str]):
    minor = sys.version_info.minor
    assert f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1})" in control["Depends"]
    assert {"python3-bpfcc", "libbpf1"} <= set(control["Depends"].split(", "))


def test_version_and_summary_are_those_of_the_project(control: dict[str, str]):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert control["Description"] == project["description"]
    assert f'__version__ = "{control["Version"]}"' in (ROOT / "agent/hotstage/__init__.py").read_text()


def test_all_belongs_to_root_and_nobody_else_may_write(listing: dict[str, tuple[str, str]]):
    assert {owner for _, owner in listing.values()} == {"root/root"}
    assert [path for path, (mode, _) in listing.items() if mode[0] != "l" and "w" in mode[5:]] == []
    assert [path for path, (mode, _) in listing.items() if "s" in mode.lower()] == []


def test_it_has_the_command_the_units_and_the_settings(deb: Path, listing: dict[str, tuple[str, str]]):
    units = {f"usr/lib/systemd/system/{path.name}" for path in (ROOT / "deploy/systemd").glob("*.service")}
    assert len(units) == 3
    documents = "usr/share/doc/hotstage"
    drop_ins = {f"{documents}/examples/{path.name}" for path in (ROOT / "deploy/systemd/drop-ins").iterdir()}
    assert {*units, *drop_ins, "usr/bin/hotstage", f"{documents}/copyright"} <= set(listing)
    assert listing["etc/hotstage/config.toml"][0] == "-rw-r-----"
    with tempfile.TemporaryDirectory() as folder:
        dpkg("--control", deb, folder)
        assert set((Path(folder) / "conffiles").read_text().split()) == {
            "/etc/hotstage/config.toml",
            "/etc/hotstage/probes.d/README.md",
            "/etc/hotstage/probes.d/lookups.bpf.c.example",
            "/etc/hotstage/probes.d/programs.bpf.c.example",
        }
    assert listing["etc/hotstage/probes.d/"] == ("drwxr-xr-x", "root/root")


def test_no_unit_is_enabled(listing: dict[str, tuple[str, str]]):
    assert [path for path in listing if ".wants/" in path or ".requires/" in path] == []


def test_its_environment_is_that_of_debians_python(unpacked: Path):
    environment = unpacked / "opt/hotstage"
    assert str((environment / "bin/python3").readlink()) == f"/usr/bin/python3.{sys.version_info.minor}"
    assert (environment / "bin/hotstage").read_text().startswith("#!/opt/hotstage/bin/python3\n")
    assert "home = /usr/bin\n" in (environment / "pyvenv.cfg").read_text()


def test_nothing_tells_where_it_was_built(unpacked: Path):
    places = [str(ROOT), f"{Path.home()}/", f"{sys.base_prefix}/", tempfile.gettempdir() + "/tmp"]
    ours = [unpacked / "etc", unpacked / "usr", unpacked / "opt/hotstage/bin"]
    ours += (unpacked / LIBRARY).glob("hotstage*")
    telling = [
        (str(path.relative_to(unpacked)), place)
        for folder in ours
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
        for place in places
        if place.encode() in path.read_bytes()
    ]
    assert telling == []


def test_byte_code_is_brought_along_and_names_the_installed_place(unpacked: Path):
    module = unpacked / LIBRARY / f"hotstage/__pycache__/errors.cpython-3{sys.version_info.minor}.pyc"
    assert b"/opt/hotstage/lib/" in module.read_bytes()


@pytest.mark.parametrize("script", ["preinst", "postinst", "prerm", "postrm"])
def test_the_maintainer_scripts_are_sound_shell(script: str):
    subprocess.run(["sh", "-n", ROOT / "deploy/debian" / script], check=True)
