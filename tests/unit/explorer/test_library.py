# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import re

from plotly.offline import get_plotlyjs_version

from hotstage_explorer import library

README = (library.FILE.parent / "README.md").read_text()


def test_the_part_is_of_the_version_that_plotly_brings_whole() -> None:
    head = library.FILE.read_text()[:200]
    (version,) = re.findall(r"plotly\.js \(gl3d - minified\) v([0-9.]+)", head)
    assert version == get_plotlyjs_version()
    assert f"`plotly.js-gl3d-dist-min` {version}" in README


def test_the_part_is_the_file_that_its_readme_names() -> None:
    assert f"`{hashlib.sha256(library.FILE.read_bytes()).hexdigest()}`" in README
