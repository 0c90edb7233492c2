# SPDX-License-Identifier: Apache-2.0
"""Time to first token and between tokens of finished requests, from what their marks said. Pure, numpy only.

TTFT = first token − begin of the request. Taken for the first token is the first of these that is known:

- `tokens_mark`: the server's first word of output tokens, if it told of one token.
- `decode_begin`: the begin of llm_decode, not before the end of llm_prefill.
- `tokens_mark`: that first word, if it told of several at once; the first of them came before.
- `prefill_end`: the end of llm_prefill, whose forward pass makes the first token. Where llm_decode ran
  several times, the begin of its first run is not known.

ITL = (last token − first token) ÷ (tokens − 1), as servers' benchmarks have it (vLLM's `bench serve` calls it
TPOT). Where the first word of tokens told of one: from that to the last word, over the tokens between them.
Otherwise the interval of llm_decode ÷ (output tokens − 1), and where that is not known the words again. None
below two tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.stage import Stage
from hotstage.stages.timeline import Flags, Ns, Timeline, since
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
    marked = _marked(rows, "first_token_ns", line)
    is_exact = rows["first_tokens"] == 1
    by_decode, by_prefill = _decode_begins(line), _prefill_ends(line, output)
    choices = [np.where(is_exact, marked, np.int64(-1)), by_decode, marked, by_prefill]
    known = [choice >= 0 for choice in choices]
    basis = np.select(known, [_BY_MARK, _BY_DECODE, _BY_MARK, _BY_PREFILL], NO_BASIS)
    by_words = _seconds_each(_marked(rows, "last_token_ns", line) - marked, _between(rows))
    by_interval = _seconds_each(_decode_took(line, by_decode), output - 1)
    itl = np.select([is_exact & (by_words > 0), by_interval > 0], [by_words, by_interval], by_words)
    is_known = (output >= 2) & (itl > 0)
    return FirstTokens(
        ttft_ns=np.select(known, choices, np.int64(-1)),
        basis=basis.astype(np.uint8),
        itl_seconds=np.where(is_known, itl, np.nan),
    )


def _marked(rows: NDArray[Any], name: str, line: Timeline) -> Ns:
    """When the server said it, -1 for never."""
    found: Ns = np.where(
        rows[name] > 0, since(rows[name], rows["started_ns"], line.duration_ns), np.int64(-1)
    )
    return found


def _between(rows: NDArray[Any]) -> Ns:
    """Tokens that came after the first word of them, up to the last; 0 where all were told at once."""
    found: Ns = np.maximum(rows["last_tokens"].astype(np.int64) - rows["first_tokens"], 0)
    return found


def _seconds_each(took_ns: Ns, tokens: Ns) -> NDArray[np.float64]:
    """0 where there are none, or no time."""
    found: NDArray[np.float64] = np.maximum(took_ns, 0) / np.maximum(tokens, 1) / 1e9
    return np.where(tokens > 0, found, 0.0)


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


def _decode_took(line: Timeline, begins: Ns) -> Ns:
    """From its begin to its end; 0 where it is not known that it ran once and ended."""
    took = line.ended_ns[:, Stage.llm_decode] - begins
    return np.where(_is_closed(line, Stage.llm_decode), took, 0)


def _is_closed(line: Timeline, stage: Stage) -> Flags:
    """Ran once and ended."""
    found: Flags = line.is_placed[:, stage] & ~line.is_open[:, stage]
    return found
