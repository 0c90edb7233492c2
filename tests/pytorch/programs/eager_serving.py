# SPDX-License-Identifier: Apache-2.0
"""Language models at work: a generation loop, an engine that batches, an encoder before the prompt.

Each is a generator that yields after a step and says beforehand what the step's launches are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from eager_models import (
    DEVICE,
    HALF,
    PATCH_VALUES,
    GrowingCache,
    ImageEncoder,
    LanguageModel,
    empty,
)
from torch import Tensor

PREFILL, DECODE, OTHER = "prefill", "decode", "other"
Say = Callable[[str], None]

CACHE_TOKENS = 200_000
PATCHES = 256
"""Of an image."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt, log-normal within bounds."""

    least: int = 10
    most: int = 3000
    mu: float = 5.5
    sigma: float = 1.1

    def some(self, chance: random.Random) -> int:
        return max(self.least, min(self.most, int(chance.lognormvariate(self.mu, self.sigma))))


def generate(chance: random.Random, say: Say, batch: int = 1) -> Iterator[None]:
    """Prompt after prompt; one asks for the token, a batch whether all are at their end."""
    model = LanguageModel.some(chance)
    while True:
        say(PREFILL)
        yield from _answer(model, chance, say, batch, chance.randint(20, 300))


def encode_then_generate(chance: random.Random, say: Say) -> Iterator[None]:
    """An image goes before each prompt, every other time with a wait between them."""
    model, encoder = LanguageModel.some(chance), ImageEncoder(1024, 24)
    projection = empty(model.hidden, 1024)
    while True:
        say(OTHER)
        pixels = torch.zeros(chance.choice([1, 2]), PATCHES * PATCH_VALUES, dtype=HALF).to(DEVICE)
        F.linear(encoder.encode(pixels), projection)
        if chance.random() < 0.5:
            torch.cuda.synchronize()
        say(PREFILL)
        yield from _answer(model, chance, say, 1, chance.randint(20, 200))


def _answer(model: LanguageModel, chance: random.Random, say: Say, batch: int, count: int) -> Iterator[None]:
    prompt = Lengths().some(chance)
    tokens = torch.randint(0, 9, (batch, prompt)).to(DEVICE)
    cache = GrowingCache(len(model.layers))
    positions = torch.arange(prompt, device=DEVICE).unsqueeze(0)
    for _ in range(count):
        tokens = model.next_tokens(model.forward(tokens, positions, cache.attend)[:, -1:])
        if batch == 1:
            tokens[0, 0].item()
        else:
            (tokens == 2).all().item()
        say(DECODE)
        positions = positions[:, -1:] + 1
        yield


@dataclass
class _Sequence:
    prompt: int
    asked: int
    taken: int = 0
    """Tokens of the prompt that are in the cache."""
    made: int = 0


@dataclass(frozen=True)
class Load:
    """`sequences` at once, a new one as soon as one ends. `is_mixed`: prompts and decode share steps."""

    sequences: int
    lengths: Lengths = Lengths()
    asked: tuple[int, int] = (20, 300)
    step_tokens: int = 2048
    is_mixed: bool = False


def serve(chance: random.Random, say: Say, load: Load) -> Iterator[None]:
    """Continuous batching with a paged cache; what a step works on comes from the host, pinned."""
    model = LanguageModel.some(chance)
    cache = empty(CACHE_TOKENS, 1, model.heads, model.hidden // model.heads)
    running: list[_Sequence] = []
    waiting: list[_Sequence] = []
    while True:
        while len(running) + len(waiting) < load.sequences:
            waiting.append(_Sequence(load.lengths.some(chance), chance.randint(*load.asked)))
        step = _planned(running, waiting, load)
        say(_kind(step))
        _run(model, cache, step)
        for sequence, _ in step:
            sequence.made += sequence.taken == sequence.prompt
        running[:] = [each for each in running if each.made < each.asked]
        yield


Step = list[tuple[_Sequence, int]]
"""Sequences, and how many tokens of each."""


def _planned(running: list[_Sequence], waiting: list[_Sequence], load: Load) -> Step:
    step: Step = [(each, 1) for each in running] if load.is_mixed else []
    left = load.step_tokens - len(step)
    while waiting and left > 0 and len(running) < load.sequences:
        first = waiting[0]
        tokens = min(left, first.prompt - first.taken)
        step.append((first, tokens))
        left -= tokens
        first.taken += tokens
        if first.taken == first.prompt:
            running.append(waiting.pop(0))
    return step or [(each, 1) for each in running]


def _kind(step: Step) -> str:
    has_prompt = any(tokens > 1 or not each.made for each, tokens in step)
    has_decode = any(each.made for each, _ in step)
    return OTHER if has_prompt and has_decode else PREFILL if has_prompt else DECODE


def _run(model: LanguageModel, cache: Tensor, step: Step) -> None:
    tokens, sequences = sum(count for _, count in step), len(step)
    kept = sum(min(each.taken + each.made, 4000) for each, _ in step)
    longest = max(count for _, count in step)
    ids = _pinned([1] * tokens)
    positions, slots = (_pinned([0] * tokens, torch.int64) for _ in range(2))
    _pinned([[0] * 64] * sequences)  # the table of pages
    begins = _pinned(list(range(sequences + 1)))
    _pinned([1] * sequences)  # lengths

    def attend(_layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        cache.index_copy_(0, slots, keys.unsqueeze(1))
        pages = cache[: max(kept, tokens), 0]
        return torch.ops.aten._flash_attention_forward(
            queries, pages, pages, begins, begins, longest, 4000, 0.0, True, False
        )[0]

    last = model.forward(ids, positions, attend)[:sequences]
    model.next_tokens(last).to("cpu")


def _pinned(values: list, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor(values, dtype=dtype).pin_memory().to(DEVICE, non_blocking=True)
