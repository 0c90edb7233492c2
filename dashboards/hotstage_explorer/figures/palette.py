# SPDX-License-Identifier: Apache-2.0
"""Colours of drawings, which cannot read the stylesheet: the same values as in assets/explorer.css."""

from __future__ import annotations

INK = "#e8edf4"
INK_SOFT = "#a9b4c2"
PANEL = "#141a22"
FLOOR = "#19212b"
GRID = "#33404f"
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif'

# Viridis without its darkest eighth, which a dark ground would swallow.
LOAD_SCALE = [
    [0.0, "#472d7b"],
    [0.14, "#3f4788"],
    [0.29, "#31688e"],
    [0.43, "#25848e"],
    [0.57, "#1fa187"],
    [0.71, "#4ac16d"],
    [0.86, "#a0da39"],
    [1.0, "#fde725"],
]
