# SPDX-License-Identifier: Apache-2.0
"""`python unpack_wheels.py WHEELS SITE`: unpack what this interpreter lacks. No network, no pip.

A distribution that is installed already, in whatever version, is left as it is.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import zipfile
from pathlib import Path


def fits(wheel: Path) -> bool:
    """Whether the wheel's tags are for this machine and interpreter: pure, its own version, or stable ABI."""
    python, abi, system = wheel.stem.split("-")[-3:]
    if system != "any" and not system.endswith(platform.machine()):
        return False
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return "py3" in python.split(".") or own in python.split(".") or abi == "abi3"


def is_installed(wheel: Path) -> bool:
    try:
        importlib.metadata.version(wheel.name.split("-")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main(wheels: Path, site: Path) -> None:
    for wheel in sorted(wheels.glob("*.whl")):
        if fits(wheel) and not is_installed(wheel):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            print(f"unpacked {wheel.name}", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
