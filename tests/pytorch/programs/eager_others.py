# SPDX-License-Identifier: Apache-2.0
"""Programs that neither prefill nor decode, as near to it as they get: work comes in two sizes, by chance."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

import torch
import torch.nn.functional as F
from eager_models import (
    DEVICE,
    HALF,
    PATCH_VALUES,
    ImageEncoder,
    LanguageModel,
    attend_all,
    attend_causal,
    empty,
)
from eager_serving import PATCHES, Say
from torch import Tensor


def encode_images(chance: random.Random, _say: Say) -> Iterator[None]:
    """Mostly one image, up to eight; features come back."""
    encoder = ImageEncoder(chance.choice([768, 1024]), chance.choice([12, 24]))
    while True:
        images = chance.choice([1, 1, 1, 2, 4, 8])
        pooled = encoder.encode(torch.zeros(images, PATCHES * PATCH_VALUES, dtype=HALF).to(DEVICE)).mean(1)
        pooled.to("cpu")
        yield


def _small_or_large(chance: random.Random, run: int) -> Iterator[bool]:
    """Four of five runs are small ones, up to `run` in a row; a large one stands alone."""
    while True:
        is_small = chance.random() < 0.8
        for _ in range(chance.randint(1, run) if is_small else 1):
            yield is_small


def embed(
    chance: random.Random, _say: Say, is_padded: bool = False, is_classifier: bool = False
) -> Iterator[None]:
    """One text at a time, features or a class to the host; padded ones come in two lengths only."""
    model = LanguageModel.some(chance)
    classes = empty(2, model.hidden)
    for is_small in _small_or_large(chance, 12):
        if is_padded:
            length = 32 if is_small else 512
        else:
            length = chance.randint(4, 20) if is_small else chance.randint(200, 512)
        ids = torch.zeros(1, length, dtype=torch.int64).to(DEVICE)
        torch.zeros(1, length, dtype=torch.int64).to(DEVICE)  # the mask
        y = model.forward(ids, _positions(length), attend_all)
        (F.linear(y[:, 0], classes).argmax(-1) if is_classifier else y.mean(1)[:, :256].float()).to("cpu")
        yield


def recommend(chance: random.Random, _say: Say) -> Iterator[None]:
    """One candidate or many, four bytes of each to the device and back: as decode does."""
    model = LanguageModel(768, 8)
    for is_small in _small_or_large(chance, 30):
        candidates = 1 if is_small else chance.randint(16, 64)
        ids = torch.zeros(candidates, 1, dtype=torch.int32).to(DEVICE)
        y = model.forward(ids, torch.zeros(candidates, 1, device=DEVICE), attend_all)
        F.linear(y[:, 0], model.head[:2]).argmax(-1).to(torch.int32).to("cpu")
        yield


def denoise(chance: random.Random, _say: Say) -> Iterator[None]:
    """A prompt, then 20 to 30 equal steps at one of two resolutions: a number in, a scalar out."""
    model, text = ImageEncoder(1024, 12), LanguageModel.some(chance)
    out = empty(PATCH_VALUES, 1024)
    while True:
        text.forward(torch.zeros(1, 77, dtype=torch.int64).to(DEVICE), _positions(77), attend_all)
        x = empty(2, 256 if chance.random() < 0.75 else 1024, PATCH_VALUES)
        for step in range(chance.choice([20, 25, 30])):
            torch.tensor([step], dtype=torch.int64).to(DEVICE)
            x = x + F.linear(model.encode(x), out) * 0.1
            x.view(-1).view(torch.int64)[0].item()
            yield
        for _ in range(40):
            x = F.silu(x * 2)
        x.float().to("cpu")


def train(chance: random.Random, _say: Say) -> Iterator[None]:
    """Sequences padded to two lengths; the loss comes back."""
    model = LanguageModel.some(chance)
    weights = [model.head, *(each for layer in model.layers for each in layer.weights())]
    for each in weights:
        each.requires_grad_(True)
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for _ in count():
        length = chance.choice([128, 128, 128, 128, 1024])
        with torch.enable_grad():
            ids = torch.zeros(2, length, dtype=torch.int64).to(DEVICE)
            y = model.forward(ids, _positions(length), attend_causal)
            loss = F.linear(y, model.head[:1000]).float().pow(2).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        yield


def _positions(length: int) -> Tensor:
    return torch.arange(length, device=DEVICE).unsqueeze(0)
