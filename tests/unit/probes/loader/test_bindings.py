# SPDX-License-Identifier: Apache-2.0
"""The newest headers win, and a folder named bcc is not bcc."""

from __future__ import annotations

from pathlib import Path

from hotstage.probes.loader.bindings import find_bcc, find_headers


def make_headers(root: Path, release: str, *, source: bool = False) -> None:
    folder = root / "lib/modules" / release
    (folder / "build" / "include").mkdir(parents=True)
    if source:
        (folder / "source").mkdir()


def test_a_folder_without_bccs_parts_is_an_impostor(tmp_path: Path) -> None:
    (tmp_path / "bcc").mkdir()
    assert find_bcc([tmp_path]).impostors == ()
    (tmp_path / "bcc" / "__init__.py").write_text("")
    found = find_bcc([tmp_path])
    assert (found.package, found.impostors) == (None, (tmp_path / "bcc",))


def test_releases_are_compared_by_number(tmp_path: Path) -> None:
    for release in ("6.9.0-1", "6.12.3-2"):
        make_headers(tmp_path, release)
    headers = find_headers(tmp_path, "6.18.0")
    assert headers is not None
    assert (headers.release, headers.is_exact) == ("6.12.3-2", False)
    assert headers.source == headers.build


def test_a_kernel_that_carries_its_headers_needs_no_tree(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/kheaders.tar.xz").write_bytes(b"")
    headers = find_headers(tmp_path, "6.18.0")
    assert headers is not None
    assert (headers.build, headers.is_exact) == (None, True)


def test_a_source_tree_beside_the_build_is_used(tmp_path: Path) -> None:
    make_headers(tmp_path, "6.18.0", source=True)
    headers = find_headers(tmp_path, "6.18.0")
    assert headers is not None
    assert headers.source == (tmp_path / "lib/modules/6.18.0/source").resolve()
