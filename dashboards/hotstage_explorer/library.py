# SPDX-License-Identifier: Apache-2.0
"""The drawing library as browsers get it: of plotly.js the part that a page draws with.

The whole one takes a browser 0.7 s to evaluate before anything is drawn. The page Heat gets the part that
draws scatters in 2D and 3D, where Dash looks for the whole; the others get the part with bars.
`vendor/README.md` says where both come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flask import Flask, Response, send_file

_HOME = Path(__file__).parent / "vendor"
CACHE_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Part:
    """A partial bundle: `path` is where browsers find `file`."""

    path: str
    file: Path


SCENES = Part("/_dash-component-suites/plotly/package_data/plotly.min.js", _HOME / "plotly-gl3d.min.js")
"""Its path is where Dash's renderer asks for plotly.js."""

BARS = Part("/library/plotly-basic.min.js", _HOME / "plotly-basic.min.js")


def serve_library(server: Flask) -> None:
    """Answer with the parts; a rule without a variable goes before Dash's own."""
    for part in (SCENES, BARS):

        def library(file: Path = part.file) -> Response:
            return send_file(file, mimetype="text/javascript", max_age=CACHE_SECONDS)

        server.add_url_rule(part.path, endpoint=f"library-{part.file.stem}", view_func=library)
