# SPDX-License-Identifier: Apache-2.0
"""What the kernel's maps would show of simulated traffic, tick by tick: the input of the whole line.

Requests come from `streams`, slowed down by `stretch` so that as many are in flight as one wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.maps.layout import (
    CALL_EVENT_DTYPE,
    CALL_KEY_DTYPE,
    CALL_STAT_DTYPE,
    FINISHED_DTYPE,
    HISTOGRAM_SLOTS,
    REQUEST_DTYPE,
    THREAD_DTYPE,
)
from hotstage.probes.samples import CallSample, FastSample
from hotstage.stages.stage import Stage
from support.kernel_rows import KernelRequest
from support.streams import ENDPOINTS, START, TICK, Traffic, requests_of, tokens_of


@dataclass(frozen=True)
class Load:
    """How much of everything; a rate of 0 is a host that waits for work."""

    name: str
    requests_per_second: float
    stretch: float
    threads: int
    call_keys: int
    seconds: float


_PLAIN_RATE = 8.4
"""Requests per second of `Traffic` with `rate_scale` 1."""


class Maps:
    """Iterate to get (FastSample, CallSample or None): the second one every tenth tick."""

    def __init__(self, load: Load, seed: int = 1) -> None:
        self._load = load
        self._random = np.random.default_rng(seed)
        self._events = sorted(self._timeline(seed), key=lambda event: event[0])
        self._inflight: dict[int, KernelRequest] = {}
        self._finished: list[np.void] = []
        self._threads = np.zeros(load.threads, THREAD_DTYPE)
        self._threads["tid"] = self._random.permutation(np.arange(1000, 1000 + load.threads))
        self._threads["tgid"] = 100 + self._threads["tid"] % 2
        self._threads["stage"] = 255
        self._keys, self._stats = self._call_rows()

    def __iter__(self) -> Iterator[tuple[FastSample, CallSample | None]]:
        place = 0
        for tick in range(1, round(self._load.seconds * 10) + 1):
            now = START + tick * TICK
            self._finished = []
            while place < len(self._events) and self._events[place][0] <= now:
                self._apply(*self._events[place])
                place += 1
            if self._load.requests_per_second:
                self._let_threads_run(now)
            yield self._fast(now), self._slow(now) if tick % 10 == 0 else None

    def _timeline(self, seed: int):
        load = self._load
        if not load.requests_per_second:
            return
        traffic = Traffic(
            seed,
            load.seconds / load.stretch,
            rate_scale=load.requests_per_second * load.stretch / _PLAIN_RATE,
        )
        for request in requests_of(traffic):
            yield _at(request.started, load), request, "start", None
            for span in request.spans:
                yield _at(span.began, load), request, "begin", span.stage
                yield _at(span.ended, load), request, "end", span.stage
                if span.stage is Stage.llm_decode:
                    for part in range(1, request.output + 1):
                        now = span.began + (span.ended - span.began) * part / (request.output + 1)
                        yield _at(now, load), request, "token", span.stage
            yield _at(request.ended, load), request, "finish", None

    def _apply(self, at_ns, request, what, stage) -> None:
        known = self._inflight.get(request.number)
        if what == "start":
            self._inflight[request.number] = KernelRequest(
                request.number,
                at_ns=at_ns,
                pid=100 + request.instance,
                endpoint=ENDPOINTS[request.modality],
                instance=f"i-{request.instance}",
            )
        elif what == "begin":
            known.begin(stage, at_ns, modality=request.modality, tokens=tokens_of(request, stage))
        elif what == "end":
            known.end(stage, at_ns)
        elif what == "token":
            known.row["output_tokens"] += 1
        else:
            self._finished.append(known.finished(at_ns, output_tokens=request.output))
            del self._inflight[request.number]

    def _let_threads_run(self, now: int) -> None:
        running = self._random.random(len(self._threads)) < 0.3
        self._threads["launch_total"][running] += self._random.poisson(10_000 / len(self._threads))
        inside = running & (self._random.random(len(running)) < 0.5)
        self._threads["call"] = np.where(inside, 33, 0)
        self._threads["since_ns"] = now - self._random.integers(1_000, 5_000_000, len(running))

    def _call_rows(self):
        keys = np.zeros(self._load.call_keys, CALL_KEY_DTYPE)
        ids = np.array(sorted(calls_by_id()))
        keys["call"] = ids[np.arange(len(keys)) % len(ids)]
        keys["stage"], keys["modality"] = np.arange(len(keys)) % 18, np.arange(len(keys)) // 18 % 5
        keys["tgid"] = 100 + np.arange(len(keys)) % 2
        keys["device"] = np.arange(len(keys)) // 360 % 8
        return keys, np.zeros(len(keys), CALL_STAT_DTYPE)

    def _fast(self, now: int) -> FastSample:
        return FastSample(
            at_ns=now,
            threads=self._threads.copy(),
            requests=np.array([each.row for each in self._inflight.values()], REQUEST_DTYPE),
            finished=np.array(self._finished, FINISHED_DTYPE),
            xids=(),
            events=np.zeros(0, CALL_EVENT_DTYPE),
            losses={"lost_events_ring": 0, "lost_threads": 0, "missed_request": 0},
            unclean=0,
        )

    def _slow(self, now: int) -> CallSample:
        moved = np.full(len(self._keys), bool(self._load.requests_per_second))
        self._stats["count"][moved] += np.uint64(50)
        histograms = np.zeros((1, HISTOGRAM_SLOTS), np.uint64)
        return CallSample(now, self._keys.copy(), self._stats.copy(), moved, histograms)


def _at(seconds: float, load: Load) -> int:
    return START + round(seconds * load.stretch * 1e9)
