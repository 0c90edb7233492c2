# SPDX-License-Identifier: Apache-2.0
"""What the README shows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hotstage_marks

PACKAGE = Path(hotstage_marks.__file__).parent
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("program", blocks("python"))
def test_a_python_example_runs(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_there_are_python_examples():
    assert len(blocks("python")) >= 4


def test_the_c_example_compiles_and_runs(tmp_path):
    (source,) = blocks("c")
    (tmp_path / "example.c").write_text(source, encoding="utf-8")
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{PACKAGE / 'include'}"]
    link = [f"-L{PACKAGE}", "-lhotstage_marks", f"-Wl,-rpath,{PACKAGE}"]
    program = tmp_path / "example"
    subprocess.run(["gcc", *flags, tmp_path / "example.c", *link, "-o", program], check=True, timeout=60)
    subprocess.run([program], check=True, timeout=30)


@pytest.mark.parametrize("name", hotstage_marks.__all__)
def test_every_public_name_is_told_of(name):
    assert re.search(rf"\b{name}\b", README)
