# SPDX-License-Identifier: Apache-2.0
"""A request in words and figures: what it was, what each stage and wait took, exact to the drawing above."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.request_table import outcome
from hotstage_explorer.components.words import fact, heads, known, moment, nothing, unknown
from hotstage_explorer.documents.waterfall import PARTS, PLACEMENTS, Segment, Waterfall
from hotstage_explorer.figures import palette

_BASES = {
    "tokens_mark": "as the server said it",
    "decode_begin": "begin of llm_decode",
    "prefill_end": "end of llm_prefill",
}
_PART_NAMES = {"run_queue": "Run queue", "sync": "Sync", "copy": "Copy", "alloc": "Alloc", "host": "Host"}


def facts(found: Waterfall) -> list[Node]:
    """The request's own figures."""
    row = found.request
    basis = _BASES.get(found.first_token_basis, "")
    made = [
        fact("Outcome", outcome(row.outcome)),
        fact("Duration", known(units.duration(row.duration_seconds), "not told")),
        fact(
            "First token",
            known(units.duration(row.first_token_seconds), "no token was told"),
            node("span", f" {basis}", cls="soft") if basis else None,
        ),
        fact(
            "Between tokens",
            known(units.duration(found.itl_seconds), "below two output tokens"),
            title="(last − first token) ÷ (output tokens − 1)",
        ),
        fact("Output tokens", known(units.count(row.output_tokens), "not told")),
        fact("Endpoint", row.endpoint, node("span", f" on {row.instance}", cls="soft")),
        fact("Modality", ", ".join(row.modalities) or unknown("no stage has said")),
        fact("Model", row.model or unknown("not told")),
        fact("Process", known(str(row.pid) if row.pid is not None else units.DASH, "not told")),
        fact("Began", moment(found.started_ns)),
        fact("Ended", moment(row.ended_ns)),
        fact(
            "Launches",
            known(units.significant(found.launches), "not told"),
            title="with its shares of batches",
        ),
        fact("Errors", known(units.count(found.errors), "not told")),
    ]
    if found.lora_rank:
        made.append(
            fact("LoRA", f"rank {found.lora_rank}", f" {found.lora_module}" if found.lora_module else None)
        )
    if found.input_digest:
        made.append(fact("Input digest", node("code", found.input_digest)))
    if found.traceparent:
        made.append(fact("Trace", node("code", found.traceparent)))
    return made


def legend(found: Waterfall) -> list[Node]:
    """What the marks of the drawing mean, only those that it has."""
    made = [_swatch("outlined", "decides the duration (critical path)")]
    if any(part.is_wait for part in found.segments):
        made.append(_swatch("hatched", "wait"))
    kinds = {name for part in found.segments for name, seconds in part.parts if seconds}
    if kinds:
        made.append(node("span", "strip below a bar:", cls="soft"))
        made += [_swatch(f"part-{name}", _PART_NAMES[name].lower()) for name in PARTS if name in kinds]
    if any(part.is_spread for part in found.segments):
        made.append(
            _swatch(
                "dotted", "≈ several runs, places unknown: the bar is what holds them, the figure their sum"
            )
        )
    return made


def _swatch(kind: str, words: str) -> Node:
    return node("span", node("span", cls=f"swatch {kind}", aria_hidden="true"), words, cls="legend-item")


def segment_table(found: Waterfall) -> Node:
    """The drawing's twin: a row a segment, in the order of their begin."""
    if not found.segments:
        return nothing("No stage of this request is known", "Its server marked none while it ran.")
    has_parts = any(part.parts for part in found.segments)
    duration = found.request.duration_seconds
    columns = [
        ("Segment", "", ""),
        ("Modality", "", ""),
        ("Begins", "after the request", "num"),
        ("Takes", "all its runs", "num"),
        ("Runs", "", "num"),
        ("Critical path", "of the duration", "num"),
        ("Before first token", "", "num"),
        *((_PART_NAMES[name], "threads' time", "num") for name in (PARTS if has_parts else ())),
        ("Tokens", "", "num"),
        ("Context", "CUDA, device", ""),
    ]
    return node(
        "table",
        node("caption", "Stages and waits of the request, by their begin", cls="sr-only"),
        heads(columns),
        node("tbody", *(_segment(part, duration, n, has_parts) for n, part in enumerate(found.segments))),
        cls="dense",
    )


def _segment(part: Segment, duration: float | None, place: int, has_parts: bool) -> Node:
    times = dict(part.parts)
    swatch = node(
        "span",
        cls=f"swatch {'hatched' if part.is_wait else f'family-{palette.family(part.name)}'}",
        aria_hidden="true",
    )
    cells: list[Child] = [
        _begins(part),
        node("span", "≈ " if part.is_spread else "", units.duration(part.duration_seconds)),
        _runs(part),
        _critical(part, duration),
        known(units.duration(part.before_first_token_seconds), "the first token is unknown"),
        *(
            (known(units.duration(times.get(name)), "not told") if part.parts else _no_parts(part))
            for name in (PARTS if has_parts else ())
        ),
        units.count(part.tokens) if part.tokens is not None else "",
    ]
    return node(
        "tr",
        node("th", swatch, node("code", part.name), *_remarks(part), scope="row"),
        node("td", part.modality),
        *(node("td", cell, cls="num") for cell in cells),
        node("td", *_contexts(part)),
        cls="critical-path" if part.is_critical else "",
        key=str(place),
    )


def _no_parts(part: Segment) -> Child:
    return "" if part.is_gap else unknown("only stages that a thread works on synchronously are timed so")


def _begins(part: Segment) -> Child:
    begin = units.duration(part.offset_seconds)
    return f"{begin} to {units.duration(part.until_seconds)}" if part.is_spread else begin


def _runs(part: Segment) -> Child:
    if part.is_gap:
        return ""
    return known(units.count(part.runs), "not told")


def _critical(part: Segment, duration: float | None) -> Child:
    if part.critical_seconds is None:
        return unknown("not told")
    if not part.critical_seconds:
        return node("span", "no", cls="soft")
    share = f" {units.percent(part.critical_seconds / duration)}" if duration else ""
    return node("strong", units.duration(part.critical_seconds), node("span", share, cls="soft"))


def _remarks(part: Segment) -> list[Child]:
    said = []
    if part.is_gap:
        said.append(f" wait, {part.after or 'begin'} → {part.before or 'end'}")
    elif part.is_wait:
        said.append(" wait")
    if part.is_open:
        said.append(" never ended")
    if part.is_spread:
        said.append(" ≈")
    title = PLACEMENTS[part.placement] or None
    return [node("span", "".join(said), cls="soft remark", title=title)] if said else []


def _contexts(part: Segment) -> list[Child]:
    if part.is_gap or not part.contexts:
        return []
    said = [
        f"{handle:#x}" + ("" if ordinal is None else f" GPU {ordinal}") for handle, ordinal in part.contexts
    ]
    return [node("code", ", ".join(said))]
