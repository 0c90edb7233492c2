# SPDX-License-Identifier: Apache-2.0
"""The drawing library as browsers get it: the part of plotly.js that draws scatters in 2D and 3D.

The whole one takes a browser 0.7 s to evaluate before anything is drawn, this part a third of that. It stands
where Dash looks for the whole. `vendor/README.md` says where it comes from.
"""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response, send_file

PATH = "/_dash-component-suites/plotly/package_data/plotly.min.js"
"""Where Dash's renderer asks for plotly.js."""

FILE = Path(__file__).parent / "vendor" / "plotly-gl3d.min.js"
CACHE_SECONDS = 3600


def serve_library(server: Flask) -> None:
    """Answer `PATH` with the part; a rule without a variable goes before Dash's own."""

    def library() -> Response:
        return send_file(FILE, mimetype="text/javascript", max_age=CACHE_SECONDS)

    server.add_url_rule(PATH, endpoint="library", view_func=library)
