# SPDX-License-Identifier: Apache-2.0
"""Transformers in plain PyTorch, half precision, with weights that nobody set: only their kernels matter."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

DEVICE, HALF = "cuda", torch.float16
VOCABULARY = 32_000
PATCH_VALUES = 588
"""Of a patch of 14 × 14 pixels."""

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Layer, queries, keys, values, each (…, heads, width); what attention makes of them, (…, hidden)."""


def empty(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.empty(*shape, device=DEVICE, dtype=dtype)


class Transformer:
    def __init__(self, hidden: int, layers: int) -> None:
        self.hidden, self.heads = hidden, hidden // 64
        self.layers = [_Layer(hidden) for _ in range(layers)]

    def split(self, mixed: Tensor) -> tuple[Tensor, ...]:
        return mixed.view(*mixed.shape[:-1], 3, self.heads, self.hidden // self.heads).unbind(-3)


class _Layer:
    def __init__(self, hidden: int) -> None:
        self.mixed, self.out = empty(3 * hidden, hidden), empty(hidden, hidden)
        self.gate, self.up = empty(4 * hidden, hidden), empty(4 * hidden, hidden)
        self.down = empty(hidden, 4 * hidden)
        self.before, self.between = empty(hidden), empty(hidden)

    def weights(self) -> list[Tensor]:
        return [self.mixed, self.out, self.gate, self.up, self.down, self.before, self.between]


class LanguageModel(Transformer):
    """Rotary positions, RMS norms written out, gated feed-forward."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__(hidden, layers)
        self.embedding, self.head = empty(VOCABULARY, hidden), empty(VOCABULARY, hidden)
        self.last_norm = empty(hidden)
        self.frequencies = empty(hidden // self.heads // 2, dtype=torch.float32)

    @classmethod
    def some(cls, chance: random.Random) -> LanguageModel:
        return cls(chance.choice([768, 1024, 2048]), chance.choice([8, 12, 16]))

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        x = F.embedding(tokens, self.embedding)
        angles = positions.float().unsqueeze(-1) * self.frequencies
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().to(HALF).unsqueeze(-2), angles.sin().to(HALF).unsqueeze(-2)
        for index, layer in enumerate(self.layers):
            queries, keys, values = self.split(F.linear(_norm(x, layer.before), layer.mixed))
            queries, keys = _rotated(queries, cos, sin), _rotated(keys, cos, sin)
            x = x + F.linear(attend(index, queries, keys, values).reshape(*x.shape), layer.out)
            y = _norm(x, layer.between)
            x = x + F.linear(F.silu(F.linear(y, layer.gate)) * F.linear(y, layer.up), layer.down)
        return _norm(x, self.last_norm)

    def next_tokens(self, last: Tensor) -> Tensor:
        return F.linear(last, self.head).argmax(-1)


class ImageEncoder(Transformer):
    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__(hidden, layers)
        self.patches = empty(hidden, PATCH_VALUES)

    def encode(self, pixels: Tensor) -> Tensor:
        """`pixels`: (images, patches × PATCH_VALUES)."""
        x = F.linear(pixels.reshape(pixels.shape[0], -1, PATCH_VALUES), self.patches)
        for layer in self.layers:
            mixed = F.linear(F.layer_norm(x, (self.hidden,), layer.before), layer.mixed)
            x = x + F.linear(attend_all(0, *self.split(mixed)).reshape(*x.shape), layer.out)
            y = F.layer_norm(x, (self.hidden,), layer.between)
            x = x + F.linear(F.gelu(F.linear(y, layer.gate)), layer.down)
        return x


def attend_all(_layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """No cache, no mask."""
    swapped = (each.transpose(1, 2) for each in (queries, keys, values))
    return F.scaled_dot_product_attention(*swapped).transpose(1, 2)


def attend_causal(_layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    swapped = (each.transpose(1, 2) for each in (queries, keys, values))
    return F.scaled_dot_product_attention(*swapped, is_causal=True).transpose(1, 2)


class GrowingCache:
    """Keys and values that grow by concatenation, a copy of all of them with each token."""

    def __init__(self, layers: int) -> None:
        self._kept: list[tuple[Tensor, Tensor] | None] = [None] * layers

    def attend(self, index: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        queries, keys, values = (each.transpose(1, 2) for each in (queries, keys, values))
        kept = self._kept[index]
        if kept is not None:
            keys, values = torch.cat((kept[0], keys), 2), torch.cat((kept[1], values), 2)
        self._kept[index] = (keys, values)
        is_prompt = queries.shape[2] > 1
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=is_prompt).transpose(1, 2)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(HALF)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin
