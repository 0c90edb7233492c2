# SPDX-License-Identifier: Apache-2.0
"""A small inference engine in simulated time: a queue, slots, a KV cache, tokens. One seed, one history.

It keeps what it did as the truth: every duration with the moment at which it was known.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, deque
from dataclasses import dataclass, field

PHASES = ("ttft", "itl", "e2e", "queue", "prefill", "decode")
FINISH_REASONS = ("stop", "length", "abort", "error")
_FINISH_SHARES = (0.78, 0.17, 0.04, 0.01)


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What the engine is able to do, and what is asked of it."""

    requests_per_second: float = 4.0
    slots: int = 16
    kv_tokens: int = 24_000
    prompt_tokens_mean: float = 600.0
    output_tokens_mean: float = 60.0
    prefill_base_seconds: float = 0.030
    prefill_token_seconds: float = 1.2e-4
    token_seconds: float = 0.022
    image_share: float = 0.4
    cached_share: float = 0.25
    preempted_share: float = 0.01


@dataclass(slots=True)
class _Request:
    arrived: float
    prompt: int
    output: int
    has_image: bool
    admitted: float = math.nan
    first_token: float = math.nan
    last_token: float = math.nan
    made: int = 0


@dataclass(slots=True)
class EngineTruth:
    """What happened since the engine began."""

    durations: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {p: [] for p in PHASES})
    """Phase → (moment, seconds), in order of time."""
    well: list[tuple[float, float]] = field(default_factory=list)
    """(wait in the queue, whole time) in seconds of requests that ended with stop or length."""
    finished: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    cached_tokens: int = 0
    mm_queries: int = 0
    mm_hits: int = 0

    def since(self, phase: str, moment: float) -> list[float]:
        """Durations that were known after `moment`, sorted."""
        return sorted(seconds for at, seconds in self.durations[phase] if at > moment)


class EngineModel:
    """`advance` in steps of any size; the history does not depend on them. Times are in seconds from 0."""

    def __init__(self, seed: int, shape: EngineShape | None = None) -> None:
        self.shape = shape or EngineShape()
        self.truth = EngineTruth()
        self.now = 0.0
        self._random = random.Random(seed)  # noqa: S311 (a simulation)
        self._waiting: deque[_Request] = deque()
        self._running: set[int] = set()
        self._requests: dict[int, _Request] = {}
        self._events: list[tuple[float, int, str, int]] = []
        self._order = 0
        self._push(self._random.expovariate(self.shape.requests_per_second), "arrival", 0)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def kv_used_ratio(self) -> float:
        used = sum(self._held(self._requests[number]) for number in self._running)
        return min(used / self.shape.kv_tokens, 1.0)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, what, number = heapq.heappop(self._events)
            if what == "arrival":
                self._arrive()
            else:
                self._token(number)
        self.now = until

    def _push(self, at: float, what: str, number: int) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, what, number))

    def _arrive(self) -> None:
        draw, shape = self._random, self.shape
        request = _Request(
            arrived=self.now,
            prompt=1 + int(draw.expovariate(1 / shape.prompt_tokens_mean)),
            output=1 + int(draw.expovariate(1 / shape.output_tokens_mean)),
            has_image=draw.random() < shape.image_share,
        )
        self._waiting.append(request)
        self._admit()
        self._push(self.now + draw.expovariate(shape.requests_per_second), "arrival", 0)

    def _held(self, request: _Request) -> int:
        return request.prompt + request.output

    def _admit(self) -> None:
        held = sum(self._held(self._requests[number]) for number in self._running)
        while self._waiting and len(self._running) < self.shape.slots:
            request = self._waiting[0]
            if self._running and held + self._held(request) > self.shape.kv_tokens:
                return
            self._waiting.popleft()
            held += self._held(request)
            self._begin(request)

    def _begin(self, request: _Request) -> None:
        truth, shape = self.truth, self.shape
        request.admitted = self.now
        self._know("queue", self.now - request.arrived)
        cached = int(request.prompt * shape.cached_share) if self._random.random() < 0.5 else 0
        truth.prompt_tokens += request.prompt
        truth.cached_tokens += cached
        if request.has_image:
            truth.mm_queries += 1
            truth.mm_hits += self._random.random() < 0.3
        seconds = shape.prefill_base_seconds + (request.prompt - cached) * shape.prefill_token_seconds
        number = self._order
        self._requests[number] = request
        self._running.add(number)
        self._push(self.now + seconds * self._noise(), "token", number)

    def _token(self, number: int) -> None:
        request = self._requests[number]
        self.truth.output_tokens += 1
        request.made += 1
        if request.made == 1:
            request.first_token = self.now
            self._know("ttft", self.now - request.arrived)
            self._know("prefill", self.now - request.admitted)
        else:
            self._know("itl", self.now - request.last_token)
        request.last_token = self.now
        if request.made >= request.output:
            self._finish(number)
            return
        pause = self.shape.token_seconds * (1 + 0.04 * len(self._running)) * self._noise()
        if self._random.random() < self.shape.preempted_share / request.output:
            self.truth.preemptions += 1
            pause += 0.25
        self._push(self.now + pause, "token", number)

    def _finish(self, number: int) -> None:
        request = self._requests.pop(number)
        self._running.discard(number)
        self._know("decode", self.now - request.first_token)
        self._know("e2e", self.now - request.arrived)
        (reason,) = self._random.choices(FINISH_REASONS, _FINISH_SHARES)
        self.truth.finished[reason] += 1
        if reason in ("stop", "length"):
            self.truth.well.append((request.admitted - request.arrived, self.now - request.arrived))
        self._admit()

    def _know(self, phase: str, seconds: float) -> None:
        self.truth.durations[phase].append((self.now, seconds))

    def _noise(self) -> float:
        return self._random.lognormvariate(0.0, 0.25)
