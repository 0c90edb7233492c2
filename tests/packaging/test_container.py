# SPDX-License-Identifier: Apache-2.0
"""The container image: the Containerfile's own steps on a clean Debian, by a real engine; then it runs.

The base is this machine's release, bootstrapped, in place of the one in a registry; the Python packages come
from a folder. Nothing else differs from what a user builds.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.debian import CACHE, bootstrap
from support.packages import DEMO, ROOT, assert_counted_exactly, wheelhouse

from hotstage.host.capabilities import OLD_KERNELS, USUAL

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(600)]

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

    def run(self, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """The image's entry point with these arguments; as the image's user, unless the options differ."""
        made = ["from", "--pull-never", "--security-opt", "seccomp=unconfined", self.name]
        container = buildah(*made).stdout.strip()
        try:
            command = [*self.config["Entrypoint"], *arguments]
            return buildah("run", "--isolation", "chroot", *options, container, "--", *command, check=False)
        finally:
            buildah("rm", container)


def buildah(*arguments: str, check: bool = True, seconds: float = 500) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["buildah", *arguments],
        env={**os.environ, "CONTAINERS_STORAGE_CONF": str(STORE / "storage.conf")},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, (
        f"buildah {arguments[0]}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    )
    return done


@pytest.fixture(scope="module")
def base() -> str:
    """A clean Debian as an image."""
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


@pytest.fixture(scope="module")
def image(base: str) -> Iterator[Image]:
    archives = CACHE / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    command = [
        "build",
        "--layers",
        "--pull-never",
        "--isolation",
        "chroot",
        "--tag",
        "localhost/hotstage:test",
    ]
    command += ["--volume", f"{wheelhouse()}:/packages:ro", "--volume", f"{archives}:/var/cache/apt/archives"]
    settings = {"BASE": base, "VERSION": "1.2.3", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/packages"}
    command += [word for key, value in settings.items() for word in ("--build-arg", f"{key}={value}")]
    buildah(*command, "--file", str(ROOT / "deploy/container/Containerfile"), str(ROOT))
    found = json.loads(buildah("inspect", "--type", "image", "localhost/hotstage:test").stdout)
    yield Image("localhost/hotstage:test", found["OCIv1"]["config"])
    buildah("rmi", "localhost/hotstage:test")


def exactly(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    """Root with these capabilities and no other, as the DaemonSet has it."""
    dropped = (word for name in ENGINE_GRANTS if name not in capabilities for word in ("--cap-drop", name))
    added = (word for name in capabilities for word in ("--cap-add", name))
    return ("--user", "0", *dropped, *added)


def test_it_starts_as_a_user_that_is_not_root_and_says_what_it_can_do(image: Image):
    assert image.config["User"] == "65532:65532"
    done = image.run(*image.config["Cmd"])
    assert "doctor" in done.stdout, done.stderr


def test_its_labels_say_what_it_is(image: Image):
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.title"] == "hotstage"
    assert labels["org.opencontainers.image.version"] == "1.2.3"


def test_it_has_no_compiler_and_the_distributions_bcc(image: Image):
    report = json.loads(image.run("doctor", "--json", options=exactly(USUAL)).stdout)
    assert {finding["name"]: finding["status"] for finding in report["findings"]}["bcc"] == "ok"
    container = buildah("from", "--pull-never", image.name).stdout.strip()
    try:
        root = Path(buildah("mount", container).stdout.strip())
        assert [name for name in ("gcc", "cc", "clang", "make") if (root / "usr/bin" / name).exists()] == []
    finally:
        buildah("rm", container)


def test_what_needs_no_privilege_runs_as_its_user(image: Image):
    done = image.run("config", "check")
    assert done.returncode == 0, done.stderr


def test_without_rights_it_says_which_are_missing(image: Image):
    done = image.run("demo", "--seconds", "1")
    assert done.returncode == 5, done.stderr
    assert "CAP_BPF" in done.stderr


@pytest.mark.parametrize("capabilities", [USUAL, OLD_KERNELS], ids=["modern", "legacy"])
def test_the_demo_counts_every_call_with_exactly_the_capabilities_of_a_tier(
    image: Image, capabilities: tuple[str, ...]
):
    done = image.run(*DEMO.split(), options=exactly(capabilities))
    assert done.returncode == 0, done.stderr
    assert_counted_exactly(json.loads(done.stdout))
