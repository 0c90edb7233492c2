# SPDX-License-Identifier: Apache-2.0
"""Lengths of time as every verb takes them: `45`, `45s`, `10m`, `2h`, `1d`."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """`90`, `90s`, `10m`, `2h`, `1d` → seconds; fails outside `least` to `most`, both in seconds."""

    name = "duration"

    def __init__(self, least: float | None = None, most: float | None = None) -> None:
        self._least = least
        self._most = most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(value) if isinstance(value, float) else self._read(str(value), param, ctx)
        if self._least is not None and seconds < self._least:
            self.fail(f"{value!r} is less than {self._least:g} s", param, ctx)
        if self._most is not None and seconds > self._most:
            self.fail(f"{value!r} is more than {self._most:g} s", param, ctx)
        return seconds

    def _read(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([smhd]?)", text.strip(), re.ASCII)
        if not found or float(found[1]) <= 0:
            self.fail(f"{text!r} is not a duration; write for example 45, 90s, 10m or 2h", param, ctx)
        return float(found[1]) * _UNITS[found[2]]
