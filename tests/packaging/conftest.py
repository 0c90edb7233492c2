# SPDX-License-Identifier: Apache-2.0
"""What is built once: both wheels, the Debian package, and a folder with them and all that they need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.images import Image, build, buildah
from support.packages import make, wheelhouse


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels and both source archives."""
    folder = tmp_path_factory.mktemp("wheels")
    make("wheels.py", "--into", str(folder))
    return folder


@pytest.fixture(scope="session")
def deb(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    folder = tmp_path_factory.mktemp("deb")
    make("deb.py", "--into", str(folder), "--wheels", str(wheels), "--find-links", str(wheelhouse()))
    (package,) = folder.glob("*.deb")
    return package


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory, wheels: Path, deb: Path) -> Path:
    """One folder for machines without a network."""
    folder = tmp_path_factory.mktemp("packages")
    for path in (deb, *wheels.glob("*.whl"), *wheelhouse().iterdir()):
        os.link(path, folder / path.name)
    return folder


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    made = build("localhost/hotstage:test", version="1.2.3")
    yield made
    buildah("rmi", made.name)
