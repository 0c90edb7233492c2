# SPDX-License-Identifier: Apache-2.0
"""Hosts that are made of a few real files below a temporary directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from hotstage.cli.doctor.finding import Finding
from hotstage.cli.doctor.host import Host


class FakeHost(Host):
    """A `Host` whose root is a test's; `write` makes files, `link` symbolic links."""

    def write(self, files: Mapping[str, str | bytes]) -> FakeHost:
        for name, content in files.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def link(self, name: str, target: str) -> FakeHost:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).symlink_to(target)
        return self


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(root=tmp_path / "host", release="6.18.1", machine="x86_64", search=())


@pytest.fixture
def public_host(public: Path) -> FakeHost:
    """One that strangers may look at, as far as its modes let them."""
    return FakeHost(root=public / "host", release="6.18.1", machine="x86_64", search=())


def _by_name(findings: Iterable[Finding]) -> dict[str, Finding]:
    found = list(findings)
    named = {finding.name: finding for finding in found}
    assert len(named) == len(found), "two findings of one name"
    return named


@pytest.fixture
def by_name():
    return _by_name
