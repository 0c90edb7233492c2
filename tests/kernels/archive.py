# SPDX-License-Identifier: Apache-2.0
"""Kernels of Debian's releases, by apt, from the mirror that this machine uses, checked by Debian's keys."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "kernels"
RELEASES = {"6.1": "bookworm", "6.12": "trixie"}
"""Series → the release whose kernel it is."""
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Kernel:
    """A bootable kernel. The cloud flavour boots faster and has no GPU drivers; the ordinary one has."""

    series: str
    image: Path
    modules: Path
    """The folder that they are below."""


class Archive:
    """apt with a state of its own: what this machine has installed and configured stays as it is."""

    def __init__(self, cache: Path = CACHE) -> None:
        self._cache = cache
        for folder in ("lists/partial", "cache/archives/partial"):
            (cache / folder).mkdir(parents=True, exist_ok=True)
        sources = cache / "sources.list"
        mirror = _mirror()
        sources.write_text(
            "".join(f"deb [signed-by={_KEYS}] {mirror} {release} main\n" for release in RELEASES.values())
        )
        self._options = [
            "-oDir::Etc::SourceParts=/dev/null",
            f"-oDir::Etc::SourceList={sources}",
            f"-oDir::State::Lists={cache}/lists",
            f"-oDir::Cache={cache}/cache",
            "-oAPT::Sandbox::User=root",
        ]
        self._is_fresh = False

    def fetch(self, series: str, flavour: str = "cloud-amd64") -> Kernel:
        """The newest kernel of a series. AssertionError with what apt said when there is none."""
        folder = self._cache / f"{series}-{flavour}"
        found = sorted(folder.glob("boot/vmlinuz-*"))
        if not found:
            self._unpack(series, flavour, folder)
            found = sorted(folder.glob("boot/vmlinuz-*"))
        return Kernel(series, found[-1], folder)

    def _unpack(self, series: str, flavour: str, folder: Path) -> None:
        if not self._is_fresh:
            self._apt("apt-get", "update")
            self._is_fresh = True
        pattern = rf"^linux-image-{re.escape(series)}\.[0-9][^-]*(-[0-9]+)?-{flavour}$"
        names = [line.split()[0] for line in self._apt("apt-cache", "search", pattern).splitlines()]
        assert names, f"the mirror has no kernel of {series}, {flavour}"
        newest = max(names, key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])
        folder.mkdir(exist_ok=True)
        self._apt("apt-get", "download", newest, cwd=folder)
        (package,) = folder.glob("*.deb")
        subprocess.run(["dpkg", "-x", package, folder], check=True, timeout=_SECONDS)
        package.unlink()

    def _apt(self, command: str, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [command, *self._options, *words],
            cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command} {words[0]}: {done.stderr[-2000:]}"
        return done.stdout


def _mirror() -> str:
    """Where this machine's own release comes from; Debian's mirrors hold the others beside it."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(COMPONENT)"],
        capture_output=True, text=True, check=True, timeout=_SECONDS,
    )  # fmt: skip
    mirrors = [line.split()[0] for line in told.stdout.splitlines() if line.endswith(" Debian main")]
    assert mirrors, "apt names no mirror of Debian: this needs a Debian machine"
    return next((each for each in mirrors if "security" not in each), mirrors[0])
