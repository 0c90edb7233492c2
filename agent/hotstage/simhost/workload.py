# SPDX-License-Identifier: Apache-2.0
"""Which requests arrive when, with how many tokens: one seed, one sequence, from a profile of real traces.

Pure: no clock, no thread. Faults change the rate (`load-ramp`, `idle`), never which requests are drawn.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotstage.stages.stage import Modality

PROFILE = Path(__file__).with_name("workload_profile.json")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of the server: what it takes and how often, at the demo's rate."""

    path: str
    modality: Modality
    requests_per_second: float
    bytes_per_media_token: int


ENDPOINTS = (
    Endpoint("/v1/chat/completions", Modality.text, 2.0, 0),
    Endpoint("/v1/vision", Modality.image, 3.4, 2352),  # 28 x 28 pixels of three bytes a token
    Endpoint("/v1/transcribe", Modality.audio, 1.5, 1280),  # 40 ms of 16 kHz, 16 bit
    Endpoint("/v1/video", Modality.video, 1.5, 2352),
)

MAX_TEXT_TOKENS = 4096
MAX_OUTPUT_TOKENS = 300
"""Longer answers are cut, so that a demo of 45 seconds sees most requests end."""

TEXT_TOKENS_WITH_MEDIA = 60
"""Prompt of an audio or video request: no trace has one."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request; `at_seconds` counts from the start of traffic."""

    at_seconds: float
    number: int
    id: str
    endpoint: str
    modality: Modality
    instance: int
    media_tokens: int
    text_tokens: int
    output_tokens: int
    media_bytes: int


def traceparent_of(request_id: str) -> str:
    """What the request's caller sends (W3C Trace Context): eight in ten are traced, one comes from a caller
    that traces but does not sample, one from a caller that does not trace: then it is empty.
    """
    digest = hashlib.blake2b(request_id.encode(), digest_size=26).digest()
    if digest[25] % 10 == 0:
        return ""
    flags = "00" if digest[25] % 10 == 1 else "01"
    return f"00-{digest[:16].hex()}-{digest[16:24].hex()}-{flags}"


@dataclass(frozen=True, slots=True)
class Profile:
    """Quantiles of the traces, evenly spaced: the middles of equal shares."""

    interarrival_ratio: tuple[float, ...]
    tokens: dict[str, dict[str, tuple[float, ...]]]

    @classmethod
    def load(cls, path: Path = PROFILE) -> Profile:
        raw: dict[str, Any] = json.loads(path.read_text())
        gaps = tuple(float(value) for value in raw["interarrival_ratio"])
        mean = sum(gaps) / len(gaps)
        return cls(
            interarrival_ratio=tuple(gap / mean for gap in gaps),
            tokens={
                modality: {name: tuple(values) for name, values in columns.items()}
                for modality, columns in raw["modalities"].items()
            },
        )

    def draw_tokens(self, source: random.Random, modality: Modality, column: str, otherwise: int) -> int:
        values = self.tokens[modality.name].get(column)
        return max(1, round(_draw(source, values))) if values else otherwise


def arrivals(
    *,
    seed: int,
    instances: int,
    profile: Profile,
    load: Callable[[float], float],
    endpoints: tuple[Endpoint, ...] = ENDPOINTS,
) -> Iterator[Arrival]:
    """Requests in order of time, without end; the same arguments give the same ones.

    `load(seconds)` multiplies every rate; where it is 0 nothing arrives (it must not stay 0 for ever).
    """
    streams = (_endpoint_arrivals(seed, instances, profile, load, endpoint) for endpoint in endpoints)
    for number, arrival in enumerate(heapq.merge(*streams, key=lambda arrival: arrival.at_seconds)):
        yield _numbered(arrival, seed, number)


def _endpoint_arrivals(
    seed: int, instances: int, profile: Profile, load: Callable[[float], float], endpoint: Endpoint
) -> Iterator[Arrival]:
    # Seeded by name: another endpoint, or another rate, does not change this one's requests.
    source = random.Random(f"{seed}/{endpoint.path}")  # noqa: S311
    modality = endpoint.modality
    seconds = 0.0
    while True:
        gap = _draw(source, profile.interarrival_ratio) / endpoint.requests_per_second
        seconds = _advance(seconds, gap, load)
        media = profile.draw_tokens(source, modality, "media_tokens", 0)
        text = profile.draw_tokens(source, modality, "text_tokens", TEXT_TOKENS_WITH_MEDIA)
        output = profile.draw_tokens(source, modality, "output_tokens", 1)
        yield Arrival(
            at_seconds=seconds,
            number=0,
            id="",
            endpoint=endpoint.path,
            modality=modality,
            instance=source.randrange(instances),
            media_tokens=media,
            text_tokens=min(text, MAX_TEXT_TOKENS),
            output_tokens=min(output, MAX_OUTPUT_TOKENS),
            media_bytes=media * endpoint.bytes_per_media_token,
        )


def _numbered(arrival: Arrival, seed: int, number: int) -> Arrival:
    return Arrival(
        at_seconds=arrival.at_seconds,
        number=number,
        id=f"req-{seed}-{number:06d}",
        endpoint=arrival.endpoint,
        modality=arrival.modality,
        instance=arrival.instance,
        media_tokens=arrival.media_tokens,
        text_tokens=arrival.text_tokens,
        output_tokens=arrival.output_tokens,
        media_bytes=arrival.media_bytes,
    )


_STEP_SECONDS = 0.05


def _advance(seconds: float, gap: float, load: Callable[[float], float]) -> float:
    """The moment at which `gap` seconds of ordinary load have passed after `seconds`."""
    left = gap
    while True:
        rate = load(seconds)
        if left <= rate * _STEP_SECONDS:
            return seconds + left / rate
        left -= rate * _STEP_SECONDS
        seconds += _STEP_SECONDS


def _draw(source: random.Random, quantiles: tuple[float, ...]) -> float:
    """A value of the distribution: between the middles of its shares, straight."""
    position = source.random() * (len(quantiles) - 1)
    low = int(position)
    return quantiles[low] + (quantiles[low + 1] - quantiles[low]) * (position - low)
