# SPDX-License-Identifier: Apache-2.0
"""A clean Debian to install into: this machine's release, bootstrapped once; each use has its own layer.

Every command has its own mount namespace: nothing is mounted outside, and nothing stays mounted. Processes
have the host's process ids, since probes report those.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "debian"
BOOTSTRAP_SECONDS, COMMAND_SECONDS = 300, 170

_ENTER = """\
mount -t overlay overlay -o lowerdir=$BASE,upperdir=$LAYER/upper,workdir=$LAYER/work $LAYER/root
cd $LAYER/root
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mkdir -p packages var/cache/apt/archives
mount --bind $PACKAGES packages
mount --bind $ARCHIVES var/cache/apt/archives
exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
"""


@dataclass(frozen=True, slots=True)
class CleanDebian:
    """`layer` holds what was changed; `packages` is seen inside as /packages."""

    base: Path
    layer: Path
    packages: Path

    @classmethod
    def make(cls, layer: Path, packages: Path) -> CleanDebian:
        """Bootstrap where that has not been done, and begin an empty layer."""
        for name in ("upper", "work", "root"):
            (layer / name).mkdir(parents=True)
        (CACHE / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        return cls(bootstrap(), layer, packages)

    def run(self, command: str, *, seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """A shell command inside, as root."""
        enter = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--fork",
            "--kill-child",
            "sh",
            "-ec",
            _ENTER,
        ]
        places = {
            "BASE": str(self.base),
            "LAYER": str(self.layer),
            "PACKAGES": str(self.packages),
            "ARCHIVES": str(CACHE / "archives"),
        }
        return subprocess.run(
            [*enter, "sh", "sh", "-c", command],
            env={**os.environ, **places}, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip

    def must(self, command: str, *, seconds: float = COMMAND_SECONDS) -> str:
        """Its standard output. AssertionError with what it said when it fails."""
        done = self.run(command, seconds=seconds)
        assert done.returncode == 0, (
            f"{command}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        )
        return done.stdout

    def files(self) -> set[str]:
        """Every path of the system itself; not what is mounted into it."""
        return set(self.must("find / -xdev -not -path '/packages*' -not -path '/run/*'").splitlines())


def bootstrap() -> Path:
    """The untouched system, from the mirror that this machine's apt uses."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    base = CACHE / suite
    if base.is_dir():
        return base
    mirror, components = mirror_of(suite)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        fresh = Path(scratch) / suite
        include = f"--components={','.join(components)}"
        command = ["debootstrap", "--variant=minbase", include, suite, str(fresh), mirror]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=BOOTSTRAP_SECONDS)
        fresh.rename(base)
    return base


def mirror_of(suite: str) -> tuple[str, list[str]]:
    """Address and components of a suite in apt's own sources. AssertionError when they do not name it."""
    form = "$(REPO_URI) $(CODENAME) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [line.split() for line in lines]
    mirrors = [address for address, codename, _ in found if codename == suite]
    assert mirrors, f"apt's sources do not name {suite}: {shlex.join(command)}"
    return mirrors[0], sorted(
        {part for address, name, part in found if (address, name) == (mirrors[0], suite)}
    )
