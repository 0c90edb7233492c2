# SPDX-License-Identifier: Apache-2.0
"""A file that is no object is refused with libbpf's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.errors import PreflightError
from hotstage.probes.loader.libbpf_object import Libbpf, LibbpfError


def test_a_file_that_is_no_elf_is_refused_with_the_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken.bpf.o"
    broken.write_bytes(b"no ELF at all")
    with pytest.raises(LibbpfError, match="broken") as caught:
        Libbpf().load(broken, {})
    assert "libbpf" in caught.value.log


def test_a_missing_file_is_a_preflight_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="missing"):
        Libbpf().load(tmp_path / "none.bpf.o", {})
