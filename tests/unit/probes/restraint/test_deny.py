# SPDX-License-Identifier: Apache-2.0
"""What an entry of the deny list denies, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hotstage.config.deny import DenyEntry
from hotstage.probes.loader.base import OpenLibrary
from hotstage.probes.restraint.deny import DenyList, HostVersions, shipped, version_fits

HOST = HostVersions("535.104.05", "x86_64", "6.18.44-generic")
LIBRARY = OpenLibrary(0, "/usr/lib/libcuda.so.535.104.05", 1, 2, 3, "1f2eab", "libcuda")


def refusal(host: HostVersions = HOST, **keys: str) -> str | None:
    return DenyList([DenyEntry(name="a", reason="b", **keys)], host).refusal(LIBRARY)


@pytest.mark.parametrize(
    "keys",
    [
        {"library": "libcuda"},
        {"path": "*/libcuda.so.535.*"},
        {"build_id": "1F2E*"},
        {"driver": "535.*"},
        {"driver": ">=535.54, <535.104.06"},
        {"kernel": "6.18.*"},
        {"kernel": ">=6.18"},
        {"architecture": "x86_64", "kernel": "<7", "library": "libcuda"},
    ],
)
def test_an_entry_matches_where_all_its_keys_do(keys):
    assert refusal(**keys) == "denied by 'a': b"


@pytest.mark.parametrize(
    "keys",
    [
        {"library": "libnccl"},
        {"path": "/opt/*"},
        {"build_id": "ff*"},
        {"driver": "550.*"},
        {"driver": "<535.104.05"},
        {"kernel": ">6.18.44"},
        {"architecture": "aarch64"},
        {"library": "libcuda", "architecture": "aarch64"},
    ],
)
def test_an_entry_leaves_alone_what_one_of_its_keys_does_not_name(keys):
    assert refusal(**keys) is None


def test_what_is_unknown_matches_nothing():
    assert refusal(HostVersions(None, "x86_64", "6.18"), driver="*") is None
    assert not version_fits("*", None)
    bare = OpenLibrary(0, "/x/libcuda.so.1", 1, 2, 3, None, "libcuda")
    assert DenyList([DenyEntry(name="a", reason="b", build_id="?*")], HOST).refusal(bare) is None


def test_the_first_entry_that_matches_is_named():
    entries = [DenyEntry(name=name, reason="b", library="libcuda") for name in ("first", "second")]
    assert DenyList(entries, HOST).refusal(LIBRARY) == "denied by 'first': b"


def test_versions_are_compared_by_their_numbers():
    assert version_fits(">=6.9", "6.18.1")
    assert version_fits("==6.18", "6.18.0-rc1")
    assert not version_fits("<6.9", "6.18.1")


def test_an_entry_that_would_deny_everything_is_refused():
    with pytest.raises(ValueError, match="at least one of library, path"):
        DenyEntry(name="a", reason="b")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "a", "reason": "b", "driver": ">=x"}, DenyEntry)


def test_the_shipped_list_is_of_the_documented_form():
    assert all(entry.reason for entry in shipped())


def test_the_driver_is_read_from_its_own_files(tmp_path: Path):
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    assert HostVersions.read(proc, sys).driver is None
    (proc / "driver/nvidia").mkdir(parents=True)
    (proc / "driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version: 12\n"
    )
    assert HostVersions.read(proc, sys).driver == "570.86.15"
    (sys / "module/nvidia").mkdir(parents=True)
    (sys / "module/nvidia/version").write_text("570.86.16\n")
    assert HostVersions.read(proc, sys).driver == "570.86.16"
