# SPDX-License-Identifier: Apache-2.0
"""Numbers → short text with a unit, the same on every page. None is always a dash, never a number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

DASH = "—"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def significant(value: float | None) -> str:
    """Three significant digits, thousands separated: 1,234 · 12.3 · 0.0123."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:#.3g}"


def duration(seconds: float | None) -> str:
    """A latency: µs below 1 ms, ms below 1 s, s below 2 min, then minutes."""
    if seconds is None:
        return DASH
    if seconds == 0:
        return "0 s"
    if seconds < 0.0009995:
        return f"{significant(seconds * 1e6)} µs"
    if seconds < 0.9995:
        return f"{significant(seconds * 1e3)} ms"
    if seconds < 120:
        return f"{significant(seconds)} s"
    return age(seconds)


def age(seconds: float | None) -> str:
    """How long something lasts, in whole units: 0.4 s · 12 s · 3 min 20 s · 2 h 05 min."""
    if seconds is None:
        return DASH
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole // 60 % 60:02d} min"


def percent(ratio: float | None) -> str:
    """0..1 → 0 % … 100 %; one decimal below 10 %, so that a small share does not read as none."""
    if ratio is None:
        return DASH
    value = ratio * 100
    if 0 < value < 0.05:
        return "< 0.1 %"
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:,.0f} %"


def count(value: int | None) -> str:
    return DASH if value is None else f"{value:,}"


def signed(value: float | None) -> str:
    return DASH if value is None else f"{value:+.2f}".replace("-", "−")


def clock(wall_ns: int | None) -> str:
    """Wall-clock ns → 18:02:11 (UTC)."""
    moment = _moment(wall_ns)
    return DASH if moment is None else moment.strftime("%H:%M:%S")


def stamp(wall_ns: int | None) -> str:
    """Wall-clock ns → RFC 3339 with milliseconds, for tooltips and machines."""
    moment = _moment(wall_ns)
    return "" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(wall_ns: int | None) -> datetime | None:
    if wall_ns is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=wall_ns // 1000)
    except OverflowError:
        return None
