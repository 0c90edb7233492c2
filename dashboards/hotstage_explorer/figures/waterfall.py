# SPDX-License-Identifier: Apache-2.0
"""One request's waterfall: a row a stage, the wait before it hatched on the same row. Pure.

Bars stand on the request's own clock. A thin strip under a bar says how its threads spent the time: shares
from the left, not moments. Bars that decide the duration have an outline. A dotted bar reaches over all that
may hold a stage's several runs, and no bar past the request's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotstage_explorer import units
from hotstage_explorer.documents.waterfall import PLACEMENTS, Segment, Waterfall
from hotstage_explorer.figures import palette
from hotstage_explorer.figures.flat import HATCHED, axis, escaped, layout, unit_of

ROW_PX = 28
BAR, STRIP = 0.54, 0.14
TO_THE_END = "to the end"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the drawing: a stage with the waits before it, or the wait after the last one."""

    label: str
    modality: str
    stage: Segment | None
    waits: tuple[Segment, ...]


def rows(found: Waterfall) -> list[Row]:
    """By begin; a gap stands on the row of the stage that it leads to."""
    stages = [part for part in found.segments if not part.is_gap]
    names = {part.name for part in stages}
    gaps = [part for part in found.segments if part.is_gap]
    made = [
        Row(part.name, part.modality, part, tuple(gap for gap in gaps if gap.before == part.name))
        for part in stages
    ]
    rest = tuple(gap for gap in gaps if gap.before not in names)
    return [*made, Row(TO_THE_END, "", None, rest)] if rest else made


def waterfall(found: Waterfall) -> dict[str, Any] | None:
    """None for a request of which no segment is known."""
    lines = rows(found)
    if not lines:
        return None
    per_unit, unit = unit_of(found.length_seconds)
    stages = [(n, row.stage) for n, row in enumerate(lines) if row.stage is not None]
    waits = [(n, gap) for n, row in enumerate(lines) for gap in row.waits]
    length = found.length_seconds * per_unit or 1.0
    return {
        "data": [
            _bars([each for each in stages if not each[1].is_wait], per_unit, length, is_hatched=False),
            _bars([*[each for each in stages if each[1].is_wait], *waits], per_unit, length, is_hatched=True),
            *_strips(stages, per_unit),
        ],
        "layout": layout(
            ROW_PX * len(lines) + 78,
            revision=f"request-{found.request.seq}",
            margin={"l": 8, "r": 14, "t": 30, "b": 44},
            barmode="overlay",
            bargap=0,
            xaxis=axis(f"Since the request began ({unit})", range=[0, length * 1.13], nticks=8, tickangle=0),
            yaxis=axis(
                "",
                range=[len(lines) - 0.45, -0.55],
                fixedrange=True,
                tickmode="array",
                tickvals=list(range(len(lines))),
                ticktext=[_label(row) for row in lines],
                showgrid=False,
            ),
            meta={"narrow": {"range": [0, length * 1.42], "nticks": 4}},
            shapes=_first_token_line(found, per_unit),
            annotations=[
                *_first_token_words(found, per_unit),
                *(_figure(n, part, per_unit, length) for n, part in [*stages, *waits] if _has_figure(part)),
            ],
        ),
    }


def _label(row: Row) -> str:
    about = "≈ " if row.stage is not None and row.stage.is_spread else ""
    modality = (
        f" <span style='color:{palette.INK_SOFT}'>{escaped(row.modality, 8)}</span>" if row.modality else ""
    )
    mark = "<b>" if row.stage is None or row.stage.is_critical else ""
    return f"{about}{mark}{escaped(row.label, 24)}{'</b>' if mark else ''}{modality} "


def _bars(
    placed: Sequence[tuple[int, Segment]], per_unit: float, length: float, *, is_hatched: bool
) -> dict[str, Any]:
    """`length`: of the request, in the axis's unit."""
    parts = [part for _, part in placed]
    colours = [palette.FAMILIES["wait" if is_hatched else palette.family(part.name)] for part in parts]
    marker: dict[str, Any] = {
        "color": colours,
        "opacity": [1.0 if part.is_critical and not part.is_spread else 0.5 for part in parts],
        "line": {
            "color": [
                palette.INK if part.is_critical else colour
                for part, colour in zip(parts, colours, strict=True)
            ],
            "width": [1.6 if part.is_critical else 0.8 for part in parts],
        },
        "pattern": {**HATCHED, "shape": [_pattern(part, is_hatched) for part in parts]},
    }
    return {
        "type": "bar",
        "orientation": "h",
        "name": "waits" if is_hatched else "stages",
        "y": [row for row, _ in placed],
        "base": [part.offset_seconds * per_unit for part in parts],
        "x": [_end(part, per_unit, length) - part.offset_seconds * per_unit for part in parts],
        "width": [BAR * (0.7 if part.is_gap else 1) for part in parts],
        "marker": marker,
        "customdata": [_hover(part) for part in parts],
        "hovertemplate": "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
    }


def _pattern(part: Segment, is_hatched: bool) -> str:
    if part.is_spread:
        return "."
    return str(HATCHED["shape"]) if is_hatched else ""


def _end(part: Segment, per_unit: float, length: float) -> float:
    """Of its bar: never past the request's end, nor before its own begin."""
    return max(part.offset_seconds * per_unit, min(part.until_seconds * per_unit, length))


def _has_figure(part: Segment) -> bool:
    """The figure of a gap would stand on the stage that follows it."""
    return not (part.is_gap and part.before)


def _figure(row: int, part: Segment, per_unit: float, length: float) -> dict[str, Any]:
    """What a bar took, right of it. Its ground keeps the line of the first token out of the digits."""
    more = " of it" if part.is_gap else " in all"
    return {
        "xref": "x",
        "yref": "y",
        "x": _end(part, per_unit, length),
        "y": row,
        "xanchor": "left",
        "yanchor": "middle",
        "xshift": 4,
        "showarrow": False,
        "text": f"{units.duration(part.duration_seconds)}{more if part.is_spread else ''}",
        "font": {"color": palette.INK, "size": 11},
        "bgcolor": palette.PANEL,
        "borderpad": 0,
    }


def _hover(part: Segment) -> list[str]:
    begin, length = units.duration(part.offset_seconds), units.duration(part.duration_seconds)
    said = [f"begins {begin} after the request, takes {length}"]
    if part.is_spread:
        said = [f"{length} in all, somewhere from {begin} to {units.duration(part.until_seconds)}"]
    if part.last_begin_seconds is not None:
        said.append(
            f"the last of {part.runs or 'its'} runs began at {units.duration(part.last_begin_seconds)}"
        )
    if part.is_gap:
        said.append(f"between {escaped(part.after or 'the begin')} and {escaped(part.before or 'the end')}")
    if part.critical_seconds:
        said.append(f"decides {units.duration(part.critical_seconds)} of the duration")
    if PLACEMENTS[part.placement]:
        said.append(PLACEMENTS[part.placement])
    if part.is_open:
        said.append("never ended")
    title = f"Wait: {part.name}" if part.is_wait else part.name
    return [escaped(title), "<br>".join(said)]


def _strips(placed: Sequence[tuple[int, Segment]], per_unit: float) -> list[dict[str, Any]]:
    """One trace a kind of wait: what each took of its stage, from the left, never longer than the stage."""
    traces = []
    for name, colour in palette.WAITS.items():
        places, bases, lengths, said = [], [], [], []
        words = name.replace("_", " ")
        for row, part in placed:
            at = 0.0
            for kind, seconds in part.parts:
                taken = min(seconds or 0.0, part.duration_seconds - at)
                if kind == name and taken > 0:
                    places.append(row + BAR / 2 + STRIP / 2 + 0.02)
                    bases.append((part.offset_seconds + at) * per_unit)
                    lengths.append(taken * per_unit)
                    said.append([escaped(part.name), units.duration(seconds)])
                at += max(0.0, taken)
        if places:
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": name,
                    "y": places,
                    "base": bases,
                    "x": lengths,
                    "width": STRIP,
                    "marker": {"color": colour, "line": {"width": 0}},
                    "customdata": said,
                    "hovertemplate": f"%{{customdata[0]}}: {words} %{{customdata[1]}}<extra></extra>",
                }
            )
    return traces


def _first_token_line(found: Waterfall, per_unit: float) -> list[dict[str, Any]]:
    seconds = found.request.first_token_seconds
    if seconds is None:
        return []
    at = seconds * per_unit
    line = {"color": palette.INK, "width": 1.2, "dash": "dash"}
    return [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": at,
            "x1": at,
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "line": line,
        }
    ]


def _first_token_words(found: Waterfall, per_unit: float) -> list[dict[str, Any]]:
    seconds = found.request.first_token_seconds
    if seconds is None:
        return []
    is_late = found.length_seconds and seconds > found.length_seconds / 2
    return [
        {
            "xref": "x",
            "yref": "paper",
            "x": seconds * per_unit,
            "y": 1,
            "yanchor": "bottom",
            "xanchor": "right" if is_late else "left",
            "showarrow": False,
            "text": f"first token {units.duration(seconds)}",
            "font": {"color": palette.INK, "size": 11.5},
        }
    ]
