# SPDX-License-Identifier: Apache-2.0
"""A small multimodal model in plain PyTorch with random weights: encoders, alignment, decoder with a cache.

It is made to launch what a real one launches, step by step, not to say anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 8192


@dataclass(frozen=True)
class Sizes:
    """How large; the defaults give about 200 launches a decoding step."""

    width: int = 1024
    heads: int = 16
    layers: int = 16
    encoder_layers: int = 4
    batch: int = 8
    cache: int = 256


class Block(nn.Module):
    """A transformer block; with a cache it attends to what came before."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.heads = sizes.width, sizes.heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """`x` (B, T, W); `cache` (2, B, T_max, W), written at the positions `at` (T,)."""
        query, key, value = self.qkv(self.before(x)).chunk(3, dim=-1)
        if cache is not None and at is not None:
            cache[0].index_copy_(1, at, key)
            cache[1].index_copy_(1, at, value)
            key, value = cache[0], cache[1]
        attended = functional.scaled_dot_product_attention(
            *(self._split(each) for each in (query, key, value))
        )
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.after(x))))

    def _split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)


class Model(nn.Module):
    """Encoders for images and sound, an alignment, a decoder."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        width = sizes.width
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.frames = nn.Conv1d(80, width, 4, stride=4)
        self.encoder = nn.ModuleList(Block(sizes) for _ in range(sizes.encoder_layers))
        self.align = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.decoder = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.head = nn.Linear(width, VOCABULARY)

    def encode_image(self, image: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, patches, width)."""
        return self._encode(self.patches(image).flatten(2).transpose(1, 2))

    def encode_sound(self, sound: Tensor) -> Tensor:
        """(B, 80, frames) → (B, frames / 4, width)."""
        return self._encode(self.frames(sound).transpose(1, 2))

    def _encode(self, x: Tensor) -> Tensor:
        for block in self.encoder:
            x = block(x)
        return x


class Server:
    """The model on a device, with what decoding needs between steps."""

    def __init__(self, device: str, sizes: Sizes | None = None, seed: int = 0) -> None:
        torch.manual_seed(seed)
        sizes = sizes or Sizes()
        self.device = torch.device(device)
        self.sizes = sizes
        half = torch.bfloat16
        with self.device:
            self.model = Model(sizes).to(half).eval()
        shape = (sizes.layers, 2, sizes.batch, sizes.cache, sizes.width)
        self.cache = torch.zeros(shape, device=self.device, dtype=half)
        self.tokens = torch.zeros((sizes.batch, 1), device=self.device, dtype=torch.long)
        self.at = torch.zeros(1, device=self.device, dtype=torch.long)
        self._graph: torch.cuda.CUDAGraph | None = None

    @torch.inference_mode()
    def encode(self, data: Tensor, modality: str) -> Tensor:
        """Raw input on the host → features on the device."""
        moved = data.to(self.device, torch.bfloat16, non_blocking=True)
        return self.model.encode_image(moved) if modality == "image" else self.model.encode_sound(moved)

    @torch.inference_mode()
    def align(self, features: Tensor) -> Tensor:
        aligned: Tensor = self.model.align(features)
        return aligned

    @torch.inference_mode()
    def prefill(self, prompt: Tensor) -> None:
        """Run the prompt (B, T, width) through the decoder; the cache holds it afterwards."""
        length = prompt.shape[1]
        at = torch.arange(length, device=self.device)
        x = prompt
        for layer, block in enumerate(self.model.decoder):
            x = block(x, self.cache[layer], at)
        self.tokens.copy_(self.model.head(x[:, -1:]).argmax(-1))
        self.at.fill_(length)

    @torch.inference_mode()
    def step(self) -> None:
        """One token for each of the batch, launch by launch; nothing is waited for."""
        x = self.model.embedding(self.tokens)
        for layer, block in enumerate(self.model.decoder):
            x = block(x, self.cache[layer], self.at)
        self.tokens.copy_(self.model.head(x).argmax(-1))
        self.at.add_(1).remainder_(self.sizes.cache)

    def capture(self) -> None:
        """Make one step a CUDA graph; `replay` then runs it by a single launch."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.step()

    def replay(self) -> None:
        assert self._graph is not None, "`capture` comes first"
        self._graph.replay()

    def read(self) -> list[int]:
        """The newest tokens, waited for: what a server streams out."""
        found: list[int] = self.tokens.flatten().tolist()
        return found
