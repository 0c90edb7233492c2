# SPDX-License-Identifier: Apache-2.0
"""The trial on NVIDIA's own libcuda, as Debian packs it: fetched into a temporary folder, kept nowhere.

Its calls are made before cuInit, which needs no GPU and no kernel driver.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.driver_library import parse_driver

from hotstage.clock import SystemClock
from hotstage.probes.loader.base import Rung
from hotstage.probes.trial.report import PlacementVerdict
from hotstage.probes.trial.trials import LibraryTrials

pytestmark = [pytest.mark.kernel, pytest.mark.long]

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
TARGETS = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(ORIGIN)", "Created-By: Packages")
FETCH_SECONDS = 90


def non_free() -> str:
    """The archive that this host has its packages from, its part that is not free."""
    try:
        known = subprocess.run(TARGETS, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no apt here: {error}")
    for line in known.splitlines():
        uri, codename, origin = line.split(" ", 2)
        if origin == "Debian" and "-" not in codename:
            return f"deb [signed-by={KEYRING}] {uri} {codename} non-free\n"
    pytest.skip("this host has its packages from elsewhere than Debian")


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debian")
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "sources.list").write_text(non_free())
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/nonexistent",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
    }
    apt = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    try:
        for words in (["update"], ["download", "libcuda1"]):
            subprocess.run([*apt, *words], cwd=folder, check=True, capture_output=True, timeout=FETCH_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"Debian's libcuda1 cannot be fetched here: {error}")
    (package,) = folder.glob("libcuda1_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder / "files"], check=True)
    (library,) = (each for each in (folder / "files").rglob("libcuda.so.*.*") if not each.is_symlink())
    return library


@pytest.mark.parametrize("rung", list(Rung))
def test_the_real_driver_is_verified_and_hands_out_exported_functions_only(libcuda: Path, rung: Rung) -> None:
    parsed, points = parse_driver(libcuda)
    trials = LibraryTrials(rung, SystemClock())
    trials.started()
    try:
        tried, report = trials.try_out(parsed, points)
    finally:
        trials.close()
        os.close(parsed.library.fd)
    assert report is not None and report.audit is not None
    print(
        f"rung {rung}: {len(points)} symbols, {sum(point.is_emulated for point in tried)} emulated,"
        f" {report.audit.answered} of {report.audit.asked} look-ups answered, {report.seconds * 1e3:.0f} ms"
    )
    assert report.placement is PlacementVerdict.VERIFIED, report.reason
    assert tried == points
    assert report.driver_version is not None and report.driver_version >= 12000
    assert report.audit.answered > 500
    assert (report.audit.internal, report.audit.unprobed) == ((), ())
    assert sum(point.is_emulated for point in tried) >= 0.98 * len(tried)
