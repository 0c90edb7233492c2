# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import re

import pytest
from plotly.offline import get_plotlyjs_version

from hotstage_explorer import library

PARTS = {"gl3d": library.SCENES, "basic": library.BARS}
README = (library.SCENES.file.parent / "README.md").read_text()


@pytest.mark.parametrize("name", PARTS)
def test_the_part_is_of_the_version_that_plotly_brings_whole(name: str) -> None:
    head = PARTS[name].file.read_text()[:200]
    (version,) = re.findall(rf"plotly\.js \({name} - minified\) v([0-9.]+)", head)
    assert version == get_plotlyjs_version()
    assert f"`plotly.js-{name}-dist-min` {version}" in README


@pytest.mark.parametrize("name", PARTS)
def test_the_part_is_the_file_that_its_readme_names(name: str) -> None:
    assert f"`{hashlib.sha256(PARTS[name].file.read_bytes()).hexdigest()}`" in README


@pytest.mark.parametrize(
    ("name", "kinds"), [("gl3d", {"scatter", "scatter3d"}), ("basic", {"scatter", "bar"})]
)
def test_the_part_draws_what_its_pages_draw(name: str, kinds: set[str]) -> None:
    assert kinds <= set(re.findall(r'moduleType:"trace",name:"(\w+)"', PARTS[name].file.read_text()))
