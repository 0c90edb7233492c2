# SPDX-License-Identifier: Apache-2.0
"""What `pyproject.toml` cannot say: the wheel of `hotstage` carries compiled parts, so it names its platform.

The BPF objects are of one architecture, and the simulated host's libraries of one architecture and C library.
An editable install compiles nothing here: `make bpf` and the first demo do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class BuildPackage(build_py):
    """Adds the BPF objects and the simulated host's libraries to the modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib).resolve() / "hotstage"
            _build_bpf_objects(package / "probes" / "objects")
            _build_simulated_libraries(package / "simhost")


class CompiledDistribution(Distribution):
    """Goes where compiled packages go, though no part of it is a module of Python's."""

    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    """For any Python 3 of this architecture: nothing in it is compiled against Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


def _build_bpf_objects(folder: Path) -> None:
    """Compiled anew, so that nothing of an earlier build gets in."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run(["make", "-s", "-C", str(ROOT / "bpf"), f"OUT={folder}"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        remedy = "apt-get install make clang llvm gcc libc6-dev libbpf-dev"
        raise SystemExit(f"the BPF objects cannot be compiled ({error}): {remedy}") from None


def _build_simulated_libraries(package: Path) -> None:
    """`hotstage demo` then needs no compiler where the wheel is installed."""
    sys.path.insert(0, str(ROOT / "agent"))
    from hotstage.simhost import build

    folder = package / build.PREPARED.name
    shutil.rmtree(folder, ignore_errors=True)
    build.prepare(folder)


setup(distclass=CompiledDistribution, cmdclass={"build_py": BuildPackage, "bdist_wheel": PlatformWheel})
