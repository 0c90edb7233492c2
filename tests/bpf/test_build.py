# SPDX-License-Identifier: Apache-2.0
"""The sources compile without a warning for both architectures; copies of them stand beside the objects."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.bpf.conftest import REPOSITORY


def test_both_architectures_compile() -> None:
    done = subprocess.run(
        ["make", "-C", REPOSITORY / "bpf", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_sources_stand_beside_the_objects_for_bcc(objects: Path) -> None:
    names = ("hotstage.bpf.c", "calls.bpf.c", "marks.bpf.c", "nvtx.bpf.c")
    sources = [REPOSITORY / "bpf" / name for name in names]
    sources += (REPOSITORY / "bpf/include").glob("*.h")
    for source in sources:
        copy = objects / source.relative_to(REPOSITORY / "bpf")
        assert copy.read_bytes() == source.read_bytes(), copy


def test_every_source_says_under_which_licence_it_is() -> None:
    for source in [*(REPOSITORY / "bpf").glob("*.c"), *(REPOSITORY / "bpf/include").glob("*.h")]:
        first = source.read_text(encoding="utf-8").splitlines()[0]
        assert first == "// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause", source
