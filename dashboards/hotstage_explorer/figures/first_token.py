# SPDX-License-Identifier: Apache-2.0
"""What the mean time to first token is made of: a bar a modality, a piece each stage and wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotstage_explorer import units
from hotstage_explorer.documents.latency import Part, TokenLatency
from hotstage_explorer.figures import palette
from hotstage_explorer.figures.flat import HATCHED, axis, escaped, layout, unit_of

SMALLEST_SHARE = 0.01
"""Of a bar: what is below stands together at its end; the table has each."""

_LABEL_SHARE = 0.1
"""A piece of this share of the longest bar has room for its name."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Part of the bar `place`; seconds from the bar's begin."""

    place: int
    modality: str
    begin: float
    seconds: float
    part: Part


def first_token(rows: Sequence[TokenLatency]) -> dict[str, Any] | None:
    """None where no time to first token is known."""
    known = [row for row in rows if row.ttft_mean_seconds and row.parts]
    if not known:
        return None
    longest = max(row.ttft_mean_seconds or 0.0 for row in known)
    per_unit, unit = unit_of(longest)
    pieces = [piece for place, row in enumerate(known) for piece in _pieces(place, row)]
    traces = [
        _trace([each for each in pieces if each.part.is_wait is is_wait], per_unit, longest, is_wait)
        for is_wait in (False, True)
    ]
    return {
        "data": [trace for trace in traces if trace["x"]],
        "layout": layout(
            36 * len(known) + 74,
            revision="first-token",
            margin={"l": 8, "r": 14, "t": 8, "b": 44},
            barmode="overlay",
            uniformtext={"minsize": 9, "mode": "hide"},
            xaxis=axis(f"Mean time to first token ({unit})", range=[0, longest * per_unit * 1.12], nticks=8),
            yaxis=axis(
                "",
                range=[len(known) - 0.45, -0.55],
                fixedrange=True,
                tickmode="array",
                tickvals=list(range(len(known))),
                ticktext=[f"{escaped(row.name, 28)} " for row in known],
                showgrid=False,
            ),
            meta={"narrow": {"range": [0, longest * per_unit * 1.5], "nticks": 4}},
            annotations=[_total(place, row, per_unit) for place, row in enumerate(known)],
        ),
    }


def _pieces(place: int, row: TokenLatency) -> list[_Piece]:
    """From the largest on; what is small is one piece."""
    large = [part for part in row.parts if part.share >= SMALLEST_SHARE]
    small = [part for part in row.parts if part.share < SMALLEST_SHARE]
    if len(small) == 1:
        large += small
    elif small:
        share = sum(part.share for part in small)
        large.append(Part(f"{len(small)} smaller ones", False, None, None, None, share))
    mean, at, made = row.ttft_mean_seconds or 0.0, 0.0, []
    for part in large:
        made.append(_Piece(place, row.name, at, part.share * mean, part))
        at += part.share * mean
    return made


def _trace(pieces: Sequence[_Piece], per_unit: float, longest: float, is_wait: bool) -> dict[str, Any]:
    # On hatching no text can be read: the table and the tip name waits.
    has_room = [not is_wait and each.seconds >= _LABEL_SHARE * longest for each in pieces]
    colours = [palette.FAMILIES["wait" if is_wait else palette.family(each.part.name)] for each in pieces]
    marker: dict[str, Any] = {"color": colours, "line": {"color": palette.PANEL, "width": 1.5}}
    if is_wait:
        marker["pattern"] = HATCHED
    return {
        "type": "bar",
        "orientation": "h",
        "y": [each.place for each in pieces],
        "base": [each.begin * per_unit for each in pieces],
        "x": [each.seconds * per_unit for each in pieces],
        "width": 0.62,
        "marker": marker,
        "text": [
            escaped(each.part.name, 24) if has else "" for each, has in zip(pieces, has_room, strict=True)
        ],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "constraintext": "inside",
        "textangle": 0,
        "textfont": {"color": palette.ON_BARS, "size": 11.5},
        "customdata": [_hover(each) for each in pieces],
        "hovertemplate": "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
    }


def _hover(piece: _Piece) -> list[str]:
    part = piece.part
    title = f"{'Wait: ' if part.is_wait else ''}{part.name}, {piece.modality}"
    said = (
        f"{units.percent(part.share)} of the time to first token: {units.duration(piece.seconds)} of its mean"
    )
    if part.p95_seconds is not None:
        said += f"<br>P95 {units.duration(part.p95_seconds)} over {units.count(part.count)} requests"
    return [escaped(title), said]


def _total(place: int, row: TokenLatency, per_unit: float) -> dict[str, Any]:
    return {
        "x": (row.ttft_mean_seconds or 0.0) * per_unit,
        "y": place,
        "xanchor": "left",
        "showarrow": False,
        "text": f" {units.duration(row.ttft_mean_seconds)}",
        "font": {"color": palette.INK, "size": 12},
    }
