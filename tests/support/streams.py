# SPDX-License-Identifier: Apache-2.0
"""Synthetic traffic as pulses, in simulated time: requests of four modalities, faults and hard negatives.

A model of a server, not of the detectors: every stage has its own cost, noise and tail, load slows all stages
somewhat, a fault multiplies the time of work begun while it lasts, a hang stops everything on one instance.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from hotstage.stages.pulse import NameTable, Pulse
from hotstage.stages.spans import PROCESS_DTYPE, REQUEST_DTYPE, SPAN_DTYPE
from hotstage.stages.stage import Modality, Stage

SECOND = 1_000_000_000
TICK = 100_000_000
START = 1_000 * SECOND

# stage: (base seconds, seconds per token, sigma of the logarithm)
COSTS = {
    Stage.media_fetch: (0.030, 4e-6, 0.4),
    Stage.media_decode: (0.020, 8e-6, 0.2),
    Stage.preprocess: (0.018, 6e-6, 0.2),
    Stage.tokenize: (0.008, 2e-6, 0.2),
    Stage.queue: (0.020, 0.0, 0.8),
    Stage.vision_encode: (0.030, 80e-6, 0.15),
    Stage.audio_encode: (0.050, 60e-6, 0.15),
    Stage.video_encode: (0.080, 45e-6, 0.15),
    Stage.cross_modal_align: (0.012, 3e-6, 0.2),
    Stage.llm_prefill: (0.020, 25e-6, 0.15),
    Stage.llm_decode: (0.010, 6e-3, 0.12),
    Stage.detokenize: (0.006, 10e-6, 0.25),
}
MEDIA = (Stage.media_fetch, Stage.media_decode, Stage.preprocess)
ANSWER = (Stage.llm_prefill, Stage.llm_decode, Stage.detokenize)
ROUTES = {
    Modality.text: (Stage.tokenize, Stage.queue, *ANSWER),
    Modality.image: (
        *MEDIA,
        Stage.tokenize,
        Stage.queue,
        Stage.vision_encode,
        Stage.cross_modal_align,
        *ANSWER,
    ),
    Modality.audio: (*MEDIA, Stage.queue, Stage.audio_encode, *ANSWER),
    Modality.video: (*MEDIA, Stage.queue, Stage.video_encode, Stage.cross_modal_align, *ANSWER),
}
RATES = {Modality.text: 2.0, Modality.image: 3.4, Modality.audio: 1.5, Modality.video: 1.5}
ENDPOINTS = {
    Modality.text: "/v1/chat/completions",
    Modality.image: "/v1/vision",
    Modality.audio: "/v1/transcribe",
    Modality.video: "/v1/video",
}
HOST_STAGES = {
    Stage.media_fetch,
    Stage.media_decode,
    Stage.preprocess,
    Stage.tokenize,
    Stage.queue,
    Stage.detokenize,
}


@dataclass(frozen=True)
class Fault:
    """`factor` times as long for work begun from `start` to `end`; factor 0 = a hang of the instance."""

    stage: Stage | None = None
    modality: Modality | None = None
    factor: float = 1.0
    start: float = 0.0
    end: float = 0.0
    shape: str = "step"
    instance: int | None = None

    def touches(self, modality: Modality, instance: int) -> bool:
        return self.modality in (None, modality) and self.instance in (None, instance)

    def at(self, seconds: float) -> float:
        if not self.start <= seconds < self.end:
            return 1.0
        if self.shape == "ramp":
            share = (seconds - self.start) / (0.6 * (self.end - self.start))
            return 1.0 + (self.factor - 1.0) * min(1.0, share)
        if self.shape == "intermittent" and int(seconds - self.start) % 2:
            return 1.0
        return self.factor


@dataclass
class Traffic:
    """What to simulate. Times in seconds from the start."""

    seed: int
    seconds: float
    faults: tuple[Fault, ...] = ()
    instances: int = 2
    rate_scale: float = 1.0
    ramp: tuple[float, float, float] | None = None  # from, to, times as many requests
    idle: tuple[float, float] | None = None
    contention: float = 0.44  # exponent: 2.5 times the load takes 1.5 times as long
    tail_ratio: float = 0.01  # share of works that take four times as long
    burst: float = 1.0  # gamma shape of the gaps: below 1 is bursty
    pauses: tuple[tuple[float, float], ...] = ()  # (at, for): everything stands still
    long_prefills: tuple[float, ...] = ()  # at: one prefill of 150,000 tokens
    names: NameTable = field(default_factory=NameTable)

    def load(self, seconds: float) -> float:
        if self.idle and self.idle[0] <= seconds < self.idle[1]:
            return 0.0
        if self.ramp and self.ramp[0] <= seconds < self.ramp[1]:
            share = min(1.0, (seconds - self.ramp[0]) / (0.6 * (self.ramp[1] - self.ramp[0])))
            return 1.0 + (self.ramp[2] - 1.0) * share
        return 1.0


@dataclass
class _Span:
    request: int
    stage: Stage
    began: float
    ended: float


@dataclass
class _Request:
    number: int
    modality: Modality
    instance: int
    started: float
    ended: float
    media: int
    text: int
    output: int
    spans: list[_Span]


def requests_of(traffic: Traffic) -> list[_Request]:
    """All requests of the run, by start."""
    source = random.Random(traffic.seed)
    made: list[_Request] = []
    for modality, rate in RATES.items():
        seconds = source.random() / rate
        while seconds < traffic.seconds:
            load = traffic.load(seconds)
            if load == 0.0:
                seconds += 0.1
                continue
            made.append(_request(traffic, source, modality, seconds))
            shape = traffic.burst
            seconds += source.gammavariate(shape, 1 / shape) / (rate * load * traffic.rate_scale)
    for number, at in enumerate(traffic.long_prefills):
        made.append(
            _request(traffic, source, Modality.text, at, text=150_000, instance=number % traffic.instances)
        )
    made.sort(key=lambda request: request.started)
    for number, request in enumerate(made):
        request.number = number + 1
        for span in request.spans:
            span.request = request.number
    return made


def _request(traffic, source, modality, seconds, *, text=None, instance=None):
    instance = source.randrange(traffic.instances) if instance is None else instance
    media = {
        Modality.text: 0,
        Modality.image: int(min(source.lognormvariate(6.5, 0.5), 4000)),
        Modality.audio: int(min(source.lognormvariate(6.0, 0.8), 6000)),
        Modality.video: int(min(source.lognormvariate(7.6, 0.6), 12000)),
    }[modality]
    text = int(min(source.lognormvariate(5.5, 1.0), 4096)) if text is None else text
    output = int(min(max(source.lognormvariate(4.6, 0.7), 5), 300))
    request = _Request(0, modality, instance, seconds, 0.0, media, text, output, [])
    now = seconds
    for stage in ROUTES[modality]:
        base, per_token, sigma = COSTS[stage]
        tokens = tokens_of(request, stage)
        work = (base + per_token * tokens) * source.lognormvariate(0.0, sigma)
        if source.random() < traffic.tail_ratio:
            work *= 4.0
        work *= max(traffic.load(now), 1.0) ** traffic.contention
        for fault in traffic.faults:
            if fault.factor and fault.stage is stage and fault.touches(modality, instance):
                work *= fault.at(now)
        ended = _stretch(traffic, instance, now, now + work)
        request.spans.append(_Span(0, stage, now, ended))
        now = ended + 0.0005
    request.ended = now
    return request


def _stretch(traffic, instance, began, ended):
    """Work that is under way in a pause or hang goes on after it."""
    stops = [(at, at + length) for at, length in traffic.pauses]
    stops += [(f.start, f.end) for f in traffic.faults if not f.factor and f.instance in (None, instance)]
    for start, end in sorted(stops):
        if began < end and ended > start:
            ended += end - max(start, began)
    return ended


def tokens_of(request: _Request, stage: Stage) -> int:
    if stage is Stage.tokenize:
        return request.text
    if stage in (Stage.llm_decode, Stage.detokenize):
        return request.output
    if stage in (Stage.llm_prefill, Stage.queue):
        return request.text + request.media
    return request.media


class Streams:
    """Iterate to get the pulses of a run, one a tick."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.requests = requests_of(traffic)
        self._spans = self._span_rows()
        self._rows = self._request_rows()
        self._ended_order = np.argsort(self._spans["duration_ns"] + self._spans["began_ns"], kind="stable")

    def _span_rows(self):
        names = self.traffic.names
        flat = [(request, span) for request in self.requests for span in request.spans]
        rows = np.zeros(len(flat), SPAN_DTYPE)
        for place, (request, span) in enumerate(flat):
            rows[place] = (
                request.number,
                1,
                START + round(span.began * 1e9),
                round((span.ended - span.began) * 1e9),
                100 + request.instance,
                tokens_of(request, span.stage),
                1,
                span.stage,
                request.modality,
                False,
                span.stage,
                *(np.nan for _ in range(4)),
                names.endpoints.intern(ENDPOINTS[request.modality]),
                names.instances.intern(f"i-{request.instance}"),
                names.models.intern("vlm"),
            )
        return rows[np.argsort(rows["began_ns"], kind="stable")]

    def _request_rows(self):
        names = self.traffic.names
        rows = np.zeros(len(self.requests), REQUEST_DTYPE)
        rows["request_hash"] = [request.number for request in self.requests]
        rows["started_ns"] = [START + round(request.started * 1e9) for request in self.requests]
        rows["ended_ns"] = [START + round(request.ended * 1e9) for request in self.requests]
        rows["pid"] = [100 + request.instance for request in self.requests]
        rows["modality"] = [request.modality for request in self.requests]
        rows["output_tokens"] = [request.output for request in self.requests]
        rows["endpoint"] = [names.endpoints.intern(ENDPOINTS[request.modality]) for request in self.requests]
        rows["instance"] = [names.instances.intern(f"i-{request.instance}") for request in self.requests]
        return rows

    def __iter__(self):
        spans, rows = self._spans, self._rows
        span_ends, row_ends = spans["began_ns"] + spans["duration_ns"], rows["ended_ns"]
        launches = np.zeros(self.traffic.instances, np.uint64)
        active, inflight = np.zeros(0, np.intp), np.zeros(0, np.intp)
        next_span = next_row = 0
        for tick in range(1, round(self.traffic.seconds * SECOND / TICK) + 1):
            now = START + tick * TICK
            last_span = int(np.searchsorted(spans["began_ns"], now, "right"))
            last_row = int(np.searchsorted(rows["started_ns"], now, "right"))
            started = last_row - next_row
            active = np.concatenate([active, np.arange(next_span, last_span)])
            inflight = np.concatenate([inflight, np.arange(next_row, last_row)])
            next_span, next_row = last_span, last_row
            over, done = span_ends[active] <= now, row_ends[inflight] <= now
            ended, open_spans = spans[active[over]], spans[active[~over]]
            requests_ended, requests_open = rows[inflight[done]], rows[inflight[~done]]
            active, inflight = active[~over], inflight[~done]
            open_spans["is_open"], open_spans["count"] = True, 0
            open_spans["duration_ns"] = now - open_spans["began_ns"]
            requests_open["ended_ns"] = 0
            requests_open["output_tokens"] = 0
            self._set_masks(requests_open, open_spans, now)
            yield self._pulse(now, tick, ended, open_spans, requests_open, requests_ended, started, launches)

    def _set_masks(self, requests_open, open_spans, now):
        at = {int(span["request_hash"]): span for span in open_spans}
        for row in requests_open:
            span = at.get(int(row["request_hash"]))
            row["updated_ns"] = row["started_ns"] if span is None else span["began_ns"]
            row["open_mask"] = 0 if span is None else 1 << int(span["stage"])

    def _pulse(self, now, tick, ended, open_spans, requests_open, requests_ended, started, launches):
        processes = np.zeros(self.traffic.instances, PROCESS_DTYPE)
        seconds = (now - START) / 1e9
        for instance in range(self.traffic.instances):
            own = open_spans["stage"][open_spans["pid"] == 100 + instance]
            on_device = np.isin(own, list(HOST_STAGES), invert=True)
            stands = self._stands_still(instance, seconds)
            delta = int(np.count_nonzero(on_device)) * 7
            if stands:
                # Threads that come later still launch, until each of them waits too.
                delta = 0 if self._stands_still(instance, seconds - 6) else 4
            launches[instance] += np.uint64(delta)
            mine = requests_open[requests_open["pid"] == 100 + instance]
            row = processes[instance]
            row["pid"], row["instance"] = 100 + instance, self.traffic.names.instances.find(f"i-{instance}")
            row["launch_total"], row["launch_delta"] = launches[instance], delta
            row["open_requests"] = len(mine)
            row["oldest_request_ns"] = mine["started_ns"].min() if len(mine) else 0
            row["call_stage"] = 255
            if stands:
                row["call"], row["call_tid"], row["call_since_ns"] = 33, 1000 + instance, now - SECOND
        processes["instance"] = np.maximum(processes["instance"].astype(np.int64), 0)
        return Pulse(
            at_ns=now,
            interval_ns=TICK if tick > 1 else 0,
            ended=ended,
            open=open_spans,
            requests_open=requests_open,
            requests_ended=requests_ended,
            requests_started=started,
            processes=processes,
            xids=(),
            losses={},
            lost={},
            stale=frozenset(),
            unclean=0,
            names=self.traffic.names,
        )

    def _stands_still(self, instance, seconds):
        hangs = [f for f in self.traffic.faults if not f.factor and f.instance in (None, instance)]
        return any(f.start <= seconds < f.end for f in hangs) or any(
            at <= seconds < at + length for at, length in self.traffic.pauses
        )
