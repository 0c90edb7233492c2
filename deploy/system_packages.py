#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs what pip cannot: the packages that pyproject.toml's [tool.hotstage.system-packages] names.

Standard library only, since it runs before the virtual environment exists. It says what it installs and why,
asks apt for nothing that is already there, and on other distributions prints the list instead of guessing.
What brings a service of its own (Prometheus, for tests) is neither started nor enabled.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXIT_PREFLIGHT, EXIT_PERMISSION = 4, 5
POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian asks this program before it starts a service; 101 forbids it (invoke-rc.d's interface)."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say what is missing (exit 3)")
    parser.add_argument("--only", action="append", metavar="GROUP", help="only this group; may be repeated")
    parser.add_argument("--tests", action="store_true", help="also what only tests need")
    arguments = parser.parse_args()
    missing = _missing(arguments.only, tests=arguments.tests)
    if not missing:
        return 0
    for package, why in missing.items():
        print(f"{'missing' if arguments.check else 'installing'}: {package}: {why}", flush=True)
    if arguments.check:
        return 3
    return _install(list(missing))


def _missing(only: list[str] | None, *, tests: bool) -> dict[str, str]:
    """Package → reason, for what is not installed; names are Debian's and Ubuntu's."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = settings["tool"]["hotstage"]["system-packages"]
    arm64 = platform.machine() == "aarch64"
    wanted = {
        package: group["why"]
        for name, group in groups.items()
        if (name in only if only else group.get("for", "run") in ("run", "test" if tests else "run"))
        for package in (group.get("packages-arm64") if arm64 else None) or group["packages"]
    }
    return {package: why for package, why in wanted.items() if not _is_present(package)}


def _is_present(package: str) -> bool:
    if package.startswith("python3-") and package != "python3-bpfcc" and _interpreter_is_complete():
        return True
    if shutil.which("dpkg-query") is None:
        return False
    command = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    query = subprocess.run(command, capture_output=True, text=True, check=False)
    return query.stdout == "installed"


def _interpreter_is_complete() -> bool:
    """True where this Python brings venv, pip and its headers by itself, as one built from source does."""
    import importlib.util
    import sysconfig

    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return importlib.util.find_spec("ensurepip") is not None and headers.exists()


def _install(packages: list[str]) -> int:
    if shutil.which("apt-get") is None:
        print(
            "this is not Debian or Ubuntu: install the like of these packages, then run make", file=sys.stderr
        )
        return EXIT_PREFLIGHT
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    if prefix and shutil.which("sudo") is None:
        print("installing packages needs root: run make as root, or install sudo", file=sys.stderr)
        return EXIT_PERMISSION
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = [*prefix, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    with _no_service_starts(prefix):
        for command in ([*prefix, "apt-get", "update", "-qq"], install):
            done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
            if done.returncode:
                print(f"{' '.join(command)} failed with {done.returncode}", file=sys.stderr)
                return EXIT_PREFLIGHT
    return 0


@contextlib.contextmanager
def _no_service_starts(prefix: list[str]) -> Iterator[None]:
    """While packages are installed: a host's own policy stays, and units that came are disabled after."""
    before = _units()
    is_ours = not POLICY.exists()
    if is_ours:
        forbid = ["tee", str(POLICY)]
        subprocess.run(
            [*prefix, *forbid], input=b"#!/bin/sh\nexit 101\n", stdout=subprocess.DEVNULL, check=False
        )
        subprocess.run([*prefix, "chmod", "0755", str(POLICY)], check=False)
    try:
        yield
    finally:
        if is_ours:
            subprocess.run([*prefix, "rm", "-f", str(POLICY)], check=False)
        new = sorted(_units() - before)
        if new and shutil.which("systemctl") is not None:
            print(f"left disabled: {', '.join(new)}", flush=True)
            subprocess.run([*prefix, "systemctl", "-q", "disable", *new], check=False)


def _units() -> set[str]:
    """Services that start with the host."""
    return {path.name for path in Path("/etc/systemd/system/multi-user.target.wants").glob("*.service")}


if __name__ == "__main__":
    sys.exit(main())
