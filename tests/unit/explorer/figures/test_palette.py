# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import hotstage_explorer
from hotstage_explorer.figures import palette


def test_drawings_and_stylesheet_use_the_same_colours() -> None:
    css = (Path(hotstage_explorer.__file__).parent / "assets" / "explorer.css").read_text()
    for name, colour in (
        ("--ink", palette.INK),
        ("--ink-soft", palette.INK_SOFT),
        ("--panel", palette.PANEL),
        ("--raised", palette.FLOOR),
    ):
        assert f"{name}: {colour};" in css


def test_the_load_scale_runs_from_zero_to_one() -> None:
    stops = [stop for stop, _ in palette.LOAD_SCALE]
    assert stops == sorted(stops)
    assert (stops[0], stops[-1]) == (0.0, 1.0)
