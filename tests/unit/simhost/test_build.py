# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hotstage.errors import PreflightError
from hotstage.simhost import build


def test_the_same_sources_are_compiled_once(tmp_path):
    first = build.build(tmp_path / "cache")
    compiled = (first / "libcuda.so.1").stat().st_ino
    assert build.build(tmp_path / "cache") == first
    assert (first / "libcuda.so.1").stat().st_ino == compiled
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.name]


def test_each_run_has_its_own_files_under_the_real_names(tmp_path):
    one, other = build.lay_out(tmp_path / "one"), build.lay_out(tmp_path / "other")
    assert one.libcuda.resolve().name == "libcuda.so.550.00"
    assert one.libnvidia_ml.resolve().name == "libnvidia-ml.so.550.00"
    assert one.libcuda.stat().st_ino != other.libcuda.stat().st_ino
    assert build.lay_out(tmp_path / "one") == one


def test_no_compiler_is_said_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="no gcc") as caught:
        build.build(tmp_path / "cache")
    assert "apt-get install gcc" in caught.value.remedy
    assert not any((tmp_path / "cache").iterdir())


def test_what_a_wheel_brings_is_taken_without_a_compiler(tmp_path, monkeypatch):
    prepared = tmp_path / "libraries"
    build.prepare(prepared)
    assert not any(path.is_symlink() for path in prepared.iterdir())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.build(tmp_path / "cache", prepared) == prepared


def test_libraries_of_other_sources_are_not_taken(tmp_path):
    prepared = tmp_path / "libraries"
    build.prepare(prepared)
    (prepared / "digest").write_text("0123456789abcdef\n")
    assert build.build(tmp_path / "cache", prepared) != prepared


def test_compiled_libraries_do_not_tell_where_they_were_compiled(tmp_path):
    build.prepare(tmp_path / "libraries")
    telling = [
        path.name
        for path in (tmp_path / "libraries").iterdir()
        if str(build.STUBS.parent).encode() in path.read_bytes()
    ]
    assert telling == []
