# SPDX-License-Identifier: Apache-2.0
"""Time to first token and between tokens of finished requests, from what their marks said. Pure, numpy only.

TTFT = first token − begin of the request. Taken for the first token is the first of these that is known:

- `tokens_mark`: the server's first word of output tokens.
- `decode_begin`: the begin of llm_decode, not before the end of llm_prefill.
- `prefill_end`: the end of llm_prefill, whose forward pass makes the first token. Where llm_decode ran
  several times, the begin of its first run is not known.

ITL = (last token − first token) ÷ (output tokens − 1), as servers' benchmarks have it (vLLM's `bench serve`
calls it TPOT). The last token is the server's last word of tokens, or the end of llm_decode. Where the first
word of tokens tells of several at once, those are no intervals and are left out of the divisor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.stage import Stage
from hotstage.stages.timeline import Flags, Ns, Timeline, has_field, since
from hotstage.stages.waterfall_types import TtftBasis

BASES: tuple[TtftBasis, ...] = ("tokens_mark", "decode_begin", "prefill_end")
NO_BASIS = 255
_BY_MARK, _BY_DECODE, _BY_PREFILL = range(3)


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Of R requests."""

    ttft_ns: Ns  # since the request began; -1: unknown, or it makes none
    basis: NDArray[np.uint8]  # index into BASES, or NO_BASIS
    itl_seconds: NDArray[np.float64]  # NaN: unknown, or fewer than two tokens


def first_tokens(rows: NDArray[Any], line: Timeline) -> FirstTokens:
    """(R,) rows of FINISHED_DTYPE and their timeline → when their tokens came."""
    output = rows["output_tokens"].astype(np.int64)
    marked, last_marked, marked_tokens = _marked(rows, line)
    by_decode, by_prefill = _decode_begins(line), _prefill_ends(line, output)
    choices = [marked, by_decode, by_prefill]
    known = [choice >= 0 for choice in choices]
    ttft = np.select(known, choices, np.int64(-1))
    basis = np.select(known, [_BY_MARK, _BY_DECODE, _BY_PREFILL], NO_BASIS).astype(np.uint8)
    is_marked = basis == _BY_MARK
    last = np.where(is_marked, last_marked, _decode_ends(line))
    intervals = output - np.where(is_marked, marked_tokens, 1)
    is_known = (ttft >= 0) & (last >= ttft) & (intervals >= 1) & (output >= 2)
    itl = np.where(is_known, (last - ttft) / 1e9 / np.maximum(intervals, 1), np.nan)
    return FirstTokens(ttft, basis, itl)


def _marked(rows: NDArray[Any], line: Timeline) -> tuple[Ns, Ns, Ns]:
    """(first, last) word of tokens, -1 for none, and how many the first told of."""
    none = np.full(len(rows), np.int64(-1))
    if not has_field(rows, "first_token_ns"):
        return none, none, none
    is_told = rows["first_token_ns"] > 0
    first, last = (
        np.where(is_told, since(rows[name], rows["started_ns"], line.duration_ns), np.int64(-1))
        for name in ("first_token_ns", "last_token_ns")
    )
    return first, last, np.maximum(rows["first_tokens"].astype(np.int64), 1)


def _decode_begins(line: Timeline) -> Ns:
    begins = np.where(
        line.is_placed[:, Stage.llm_decode],
        line.began_ns[:, Stage.llm_decode],
        np.where(line.is_unplaced[:, Stage.llm_decode], line.first_ns[:, Stage.llm_decode], -1),
    )
    prefill = np.where(_is_closed(line, Stage.llm_prefill), line.ended_ns[:, Stage.llm_prefill], 0)
    return np.where(begins >= 0, np.maximum(begins, prefill), begins)


def _prefill_ends(line: Timeline, output: Ns) -> Ns:
    makes_tokens = (output > 0) | line.is_unplaced[:, Stage.llm_decode]
    is_known = _is_closed(line, Stage.llm_prefill) & makes_tokens
    return np.where(is_known, line.ended_ns[:, Stage.llm_prefill], -1)


def _decode_ends(line: Timeline) -> Ns:
    is_known = _is_closed(line, Stage.llm_decode)
    return np.where(is_known, line.ended_ns[:, Stage.llm_decode], -1)


def _is_closed(line: Timeline, stage: Stage) -> Flags:
    """Ran once and ended."""
    found: Flags = line.is_placed[:, stage] & ~line.is_open[:, stage]
    return found
