# SPDX-License-Identifier: Apache-2.0
"""The container image: built by the Containerfile's own steps, by a real engine, and run as it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.images import Image, buildah, exactly
from support.packages import DEMO, assert_counted_exactly

from hotstage.host.capabilities import OLD_KERNELS, USUAL

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(600)]


def test_it_starts_as_a_user_that_is_not_root_and_says_what_it_can_do(image: Image):
    assert image.config["User"] == "65532:65532"
    done = image.run(*image.config["Cmd"])
    assert "doctor" in done.stdout, done.stderr


def test_its_labels_say_what_it_is(image: Image):
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.title"] == "hotstage"
    assert labels["org.opencontainers.image.version"] == "1.2.3"


def test_it_has_no_compiler_and_the_distributions_bcc(image: Image):
    done = image.run("doctor", "--json", options=exactly(USUAL))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert {finding["name"]: finding["status"] for finding in report["findings"]}["bcc"] == "ok"
    with image.container() as container:
        root = Path(buildah("mount", container).stdout.strip())
        assert [name for name in ("gcc", "cc", "clang", "make") if (root / "usr/bin" / name).exists()] == []


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
