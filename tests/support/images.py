# SPDX-License-Identifier: Apache-2.0
"""Builds the container image with a real engine, and runs it as its configuration says.

The base is this machine's release, bootstrapped, in place of the one in a registry; the Python packages come
from a folder. Nothing else differs from what a user builds. Only the base is kept, below build/.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from support.debian import CACHE, bootstrap
from support.packages import ROOT, wheelhouse

STORE = ROOT / "build/containers"
ENGINE_GRANTS = [
    f"CAP_{name}"
    for name in (
        *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
]
"""What root in a container has unless it is taken away; `--cap-drop all` would take what is added, too."""


@dataclass(frozen=True, slots=True)
class Image:
    """`config` is the OCI image configuration: what an engine starts when nothing else is said."""

    name: str
    config: dict[str, Any]

    @contextmanager
    def container(self) -> Iterator[str]:
        """A container of it, without the engine's filter of system calls, gone afterwards."""
        made = ["from", "--pull-never", "--security-opt", "seccomp=unconfined", self.name]
        container = buildah(*made).stdout.strip()
        try:
            yield container
        finally:
            buildah("rm", container)

    def command(self, container: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The engine's command for the entry point with these arguments, as the image's user by default."""
        entry = [*self.config["Entrypoint"], *arguments]
        return ["buildah", "run", "--isolation", "chroot", *options, container, "--", *entry]

    def run(self, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """To its end, in a container of its own."""
        with self.container() as container:
            return buildah(*self.command(container, *arguments, options=options)[1:], check=False)


def exactly(capabilities: tuple[str, ...], user: str = "0") -> tuple[str, ...]:
    """Options for a user with these capabilities and no other, as Kubernetes gives them."""
    dropped = (word for name in ENGINE_GRANTS if name not in capabilities for word in ("--cap-drop", name))
    added = (word for name in capabilities for word in ("--cap-add", name))
    return ("--user", user, *dropped, *added)


def engine_environment() -> dict[str, str]:
    return {**os.environ, "CONTAINERS_STORAGE_CONF": str(STORE / "storage.conf")}


def buildah(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["buildah", *arguments],
        env=engine_environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    what = f"buildah {arguments[0]}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert not check or done.returncode == 0, what
    return done


def base_image() -> str:
    """A clean Debian as an image, made once."""
    system = bootstrap()
    name = f"localhost/debian:{system.name}"
    (STORE / "run").mkdir(parents=True, exist_ok=True)
    storage = f'[storage]\ndriver = "overlay"\nrunroot = "{STORE}/run"\ngraphroot = "{STORE}/graph"\n'
    (STORE / "storage.conf").write_text(storage)
    if buildah("images", "--quiet", name, check=False).returncode:
        container = buildah("from", "scratch").stdout.strip()
        root = buildah("mount", container).stdout.strip()
        subprocess.run(["cp", "-a", f"{system}/.", root], check=True)
        buildah("commit", "--quiet", "--rm", container, name)
    return name


def build(name: str, version: str) -> Image:
    """All of the Containerfile's steps: kept layers would fill the disk, some hundred megabytes a change."""
    archives = CACHE / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    command = ["build", "--pull-never", "--isolation", "chroot", "--tag", name]
    command += ["--volume", f"{wheelhouse()}:/packages:ro", "--volume", f"{archives}:/var/cache/apt/archives"]
    settings = {"BASE": base_image(), "VERSION": version, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/packages"}
    command += [word for key, value in settings.items() for word in ("--build-arg", f"{key}={value}")]
    buildah(*command, "--file", str(ROOT / "deploy/container/Containerfile"), str(ROOT))
    found = json.loads(buildah("inspect", "--type", "image", name).stdout)
    return Image(name, found["OCIv1"]["config"])
