# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode of eager PyTorch are told, or nothing is; `make bench-eager` prints it as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.pytorch.eager import LANGUAGE, OTHERS, Outcome, laboratory, row

from hotstage.stages.stage import Stage

SEED = 11
WRONG_SHARE_MOST = 0.01
DECODE_SHARE_LEAST = 0.85
"""Heads are never told: 32 launches of 300 to 600."""
PLAIN = LANGUAGE[:7]
"""Prompts and decode in bursts of their own."""

Measure = Callable[[str, int], tuple[Outcome, str]]


@pytest.fixture(scope="module")
def measure(torch_python: Path) -> Iterator[Measure]:
    with laboratory(torch_python) as started:
        yield started


@pytest.mark.parametrize("name", LANGUAGE)
def test_what_is_told_of_a_language_model_is_true(measure: Measure, name: str) -> None:
    outcome, why = measure(name, SEED)
    print(row(name, [outcome]))
    assert outcome.told_wrong <= WRONG_SHARE_MOST * outcome.told, why
    if name in PLAIN:
        assert (outcome.told_share(Stage.llm_decode) or 0) >= DECODE_SHARE_LEAST, why


@pytest.mark.parametrize("name", OTHERS)
def test_of_what_neither_prefills_nor_decodes_nothing_is_told(measure: Measure, name: str) -> None:
    outcome, why = measure(name, SEED)
    assert sum(outcome.counts.values()) > 100_000
    assert not outcome.told, why
