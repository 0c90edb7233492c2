# SPDX-License-Identifier: Apache-2.0
"""Into a Debian that has never seen hotstage, without a compiler: the package, then the wheels; real probes.

One system, in this order: install, look, run the demo, purge, compare; then a virtual environment.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.debian import CleanDebian
from support.packages import DEMO, assert_counted_exactly

pytestmark = [pytest.mark.clean_debian, pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(400)]

INSTALL = "apt-get install -y -q --no-install-recommends"
APTS_OWN = ("/var/cache/apt/", "/var/lib/apt/", "/var/log/apt/", "/var/cache/debconf/")


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Iterator[CleanDebian]:
    layer = tmp_path_factory.mktemp("layer")
    yield CleanDebian.make(layer, packages)
    shutil.rmtree(layer)


@pytest.fixture(scope="module")
def before(debian: CleanDebian) -> set[str]:
    return debian.files()


def test_it_refuses_a_folder_that_was_installed_from_sources(debian: CleanDebian, before: set[str]):
    debian.must("mkdir -p /opt/hotstage && touch /opt/hotstage/installed.json")
    done = debian.run("dpkg --install /packages/hotstage_*.deb")
    assert done.returncode != 0
    assert "make uninstall" in done.stderr
    debian.must("rm -r /opt/hotstage")


@pytest.fixture(scope="module")
def with_package(debian: CleanDebian, before: set[str]) -> CleanDebian:
    install = f"{INSTALL} /packages/hotstage_*.deb"
    debian.must(f"{install} || (apt-get update -q && {install})")  # the lists are of the day of the bootstrap
    return debian


@pytest.fixture(scope="module")
def with_wheels(debian: CleanDebian) -> CleanDebian:
    debian.must(f"{INSTALL} python3-venv libbpf1 && python3 -m venv /srv/venv")
    debian.must("/srv/venv/bin/pip install -q --no-index --find-links /packages hotstage")
    return debian


def test_there_is_no_compiler(with_package: CleanDebian):
    assert with_package.run("command -v gcc cc clang").returncode != 0


def test_doctor_finds_the_distributions_bcc_and_nothing_in_the_way(with_package: CleanDebian):
    report = json.loads(with_package.must("hotstage doctor --json"))
    found = {finding["name"]: finding for finding in report["findings"]}
    assert found["bcc"]["status"] == "ok"
    assert report["exit_code"] == 0


def test_the_settings_are_read_and_belong_to_the_account(with_package: CleanDebian):
    with_package.must("hotstage config check")
    assert with_package.must("stat -c '%U:%G %a' /etc/hotstage/config.toml").strip() == "root:hotstage 640"
    assert with_package.must("getent passwd hotstage").split(":")[6].strip() == "/usr/sbin/nologin"


def test_the_packages_demo_counts_every_call(with_package: CleanDebian):
    assert_counted_exactly(json.loads(with_package.must(f"hotstage {DEMO}")))


def test_using_it_writes_nothing_into_the_installation(with_package: CleanDebian):
    assert with_package.must("find /opt/hotstage -newer /usr/share/doc/hotstage -type f").strip() == ""


def test_purging_leaves_nothing(with_package: CleanDebian, before: set[str]):
    with_package.must("apt-get purge -y -q hotstage && apt-get autoremove --purge -y -q")
    after = with_package.files()
    changed = {path for path in before ^ after if not path.startswith(APTS_OWN)}
    assert changed <= {"/etc/gshadow-", "/etc/shadow-"}, "what the account database keeps of its last change"
    assert with_package.run("getent passwd hotstage || getent group hotstage").returncode != 0


def test_the_wheels_demo_counts_every_call(with_wheels: CleanDebian):
    assert_counted_exactly(json.loads(with_wheels.must(f"/srv/venv/bin/hotstage {DEMO}")))


def test_the_wheel_prints_the_example_settings(with_wheels: CleanDebian):
    assert "[probes]" in with_wheels.must("/srv/venv/bin/hotstage config schema --example")
