# SPDX-License-Identifier: Apache-2.0
"""The server's line: worker threads a stage, one decoding loop, a request handed from one to the next.

Every stage is told as the mode says (`annotations.py`), and recorded for the truth by the same thread. Faults
change how long the work takes and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from hotstage.simhost import service
from hotstage.simhost.annotations import Annotations, Member, RequestHandle, SpanHandle
from hotstage.simhost.gpu import Gpu, GpuError
from hotstage.simhost.threads import name_this_thread
from hotstage.simhost.truth import StageSpan
from hotstage.simhost.workload import Arrival
from hotstage.stages.stage import Modality, Stage

Slowdown = Callable[[Stage, Modality], float]
"""How many times as long a stage takes for work begun now."""

MAX_OPEN = 400
"""Requests an instance takes in; more are refused."""

MAX_SPANS = 300_000
"""Spans kept for the truth; an endless run keeps the last ones and counts the rest."""


POOL_NAME = "worker"


@dataclass(slots=True)
class Job:
    """One request on its way."""

    arrival: Arrival
    request: RequestHandle
    step: int = 0
    queue_span: SpanHandle | None = None
    began_ns: int = 0
    produced: int = 0
    decode_span: SpanHandle | None = None

    @property
    def route(self) -> tuple[Stage, ...]:
        return service.ROUTES[self.arrival.modality]


@dataclass(slots=True)
class Ledger:
    """What the instance did; guarded by its own lock."""

    instance: str
    started: int = 0
    finished: int = 0
    failed: int = 0
    refused: int = 0
    dropped: int = 0
    spans: deque[StageSpan] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def open(self) -> int:
        return self.started - self.finished

    def record(self, job: Job, stage: Stage, began_ns: int, ended_ns: int) -> None:
        arrival = job.arrival
        tokens = service.tokens_of(arrival, stage)
        span = StageSpan(
            arrival.id, stage.name, arrival.modality.name, self.instance, began_ns, ended_ns, tokens
        )
        with self.lock:
            self.dropped += len(self.spans) == MAX_SPANS
            self.spans.append(span)


class Pipeline:
    """All threads of one instance. `take` from the arrival thread, `halt` when it is over."""

    def __init__(
        self,
        *,
        instance: str,
        model: str,
        seed: int,
        calls_scale: float,
        gpu: Gpu,
        slowdown: Slowdown,
        annotations: Annotations,
        has_pool: bool = False,
        is_eager: bool = False,
    ) -> None:
        """`has_pool`: any worker does any stage on the GPU, and all threads are called alike.

        `is_eager`: the decoding thread prefills as well, and the language model has no graph.
        """
        self.ledger = Ledger(instance)
        self._annotations = annotations
        self._has_pool = has_pool
        self._is_eager = is_eager
        self._instance = instance
        self._model = model
        self._seed = seed
        self._calls_scale = calls_scale
        self._gpu = gpu
        self._slowdown = slowdown
        self._is_halted = False
        pool: SimpleQueue[Job] = SimpleQueue()
        self._lines: dict[Stage, SimpleQueue[Job]] = {
            stage: pool if has_pool and _uses_gpu(stage) else SimpleQueue() for stage in service.WORKERS
        } | {stage: SimpleQueue() for stage in (Stage.queue, Stage.llm_decode)}
        if is_eager:
            self._lines[Stage.llm_prefill] = self._lines[Stage.llm_decode]

    def start(self) -> None:
        """Open the GPU and start the threads; the first CUDA calls are made here. Raises GpuError."""
        self._gpu.open(weight_bytes=service.WEIGHT_BYTES, graph_nodes=service.GRAPH_NODES)
        for stage, workers in service.WORKERS.items():
            if self._is_eager and stage is Stage.llm_prefill:
                continue
            for number in range(workers):
                self._spawn(f"{stage.name}-{number}", self._work, stage)
        self._spawn("scheduler", self._schedule, Stage.queue)
        self._spawn(Stage.llm_decode.name, self._decode, Stage.llm_decode)

    def take(self, arrival: Arrival) -> None:
        """One request arrives."""
        request = self._annotations.request(arrival, instance=self._instance, model=self._model)
        with self.ledger.lock:
            is_full = self.ledger.open >= MAX_OPEN
            self.ledger.refused += is_full
            self.ledger.started += not is_full
        if is_full:
            request.end("refused")
            return
        self._pass_on(Job(arrival, request))

    def halt(self) -> None:
        """No stage begins from now on; what waits stays where it is."""
        self._is_halted = True

    def _spawn(self, name: str, target: Callable[[Stage], None], stage: Stage) -> None:
        """The kernel knows the thread by its name, too; of a pool, none says what it does."""

        def run() -> None:
            name_this_thread(POOL_NAME if self._has_pool or self._is_eager else name)
            target(stage)

        threading.Thread(target=run, name=name, daemon=True).start()

    def _pass_on(self, job: Job) -> None:
        """To the line of its next stage; a queue span opens on the way where the route has one."""
        if self._is_halted:
            return
        if job.route[job.step] is Stage.queue:
            job.began_ns = time.monotonic_ns()
            job.queue_span = self._span(job, Stage.queue).begin()
        self._lines[job.route[job.step]].put(job)

    def _span(self, job: Job, stage: Stage) -> SpanHandle:
        tokens = service.tokens_of(job.arrival, stage)
        return self._annotations.span(stage, job.arrival.modality, tokens, job.request)

    def _end_queue(self, job: Job) -> None:
        if job.queue_span is not None:
            job.queue_span.end()
            self.ledger.record(job, Stage.queue, job.began_ns, time.monotonic_ns())
            job.queue_span = None

    def _schedule(self, stage: Stage) -> None:
        """Admit what waits, once a period; the wait ends when a worker of the next stage takes it."""
        line = self._lines[stage]
        while True:
            waiting = [line.get()]
            time.sleep(service.SCHEDULER_SECONDS - time.monotonic() % service.SCHEDULER_SECONDS)
            while not line.empty():
                waiting.append(line.get())
            for job in waiting:
                job.step += 1
                self._pass_on(job)

    def _work(self, stage: Stage) -> None:
        """One worker thread, until the process ends: of one stage, or of the pool of those on the GPU."""
        uses_gpu = _uses_gpu(stage)
        if uses_gpu:
            self._gpu.open_thread()
        line = self._lines[stage]
        while True:
            job = line.get()
            if self._is_halted:
                continue
            self._end_queue(job)
            self._advance(job, is_done=self._do(job, uses_gpu=uses_gpu))

    def _do(self, job: Job, *, uses_gpu: bool) -> bool:
        """The stage that the job has come to; False where the GPU refused it."""
        arrival, stage, is_done = job.arrival, job.route[job.step], True
        work = service.work_of(arrival, stage, seed=self._seed, calls_scale=self._calls_scale)
        factor = self._slowdown(stage, arrival.modality)
        began_ns = time.monotonic_ns()
        with self._annotations.stage(stage, arrival.modality, work.tokens, job.request):
            if uses_gpu:
                is_done = self._run_on_gpu(work, factor)
            else:
                time.sleep(work.seconds * factor)
        self.ledger.record(job, stage, began_ns, time.monotonic_ns())
        return is_done

    def _run_on_gpu(self, work: service.StageWork, factor: float) -> bool:
        try:
            if self._is_eager and work.stage is Stage.llm_prefill:
                self._gpu.eager(
                    work.stage,
                    work.modality,
                    steps=1,
                    step_seconds=work.seconds * factor,
                    tokens=work.tokens,
                    sequences=1,
                )
            else:
                self._gpu.run(work, factor)
        except GpuError:
            return False
        return True

    def _advance(self, job: Job, *, is_done: bool) -> None:
        job.step += 1
        if is_done and job.step < len(job.route):
            self._pass_on(job)
            return
        with self.ledger.lock:
            self.ledger.finished += 1
            self.ledger.failed += not is_done
        job.request.end("ok" if is_done else "error", output_tokens=job.produced)

    def _decode(self, stage: Stage) -> None:
        """Continuous batching: requests join and leave between groups of steps."""
        self._gpu.open_thread()
        line = self._lines[stage]
        batch: list[Job] = []
        while True:
            arrived = line.get() if not batch else None
            if self._is_halted:
                batch = []
                continue
            if arrived is not None and self._is_prefilled(arrived):
                batch.append(self._join(arrived))
            while not line.empty() and len(batch) < service.MAX_BATCH:
                if self._is_prefilled(job := line.get()):
                    batch.append(self._join(job))
            if batch:
                self._decode_some(batch)
            batch = [job for job in batch if not self._leave(job)]

    def _is_prefilled(self, job: Job) -> bool:
        """Prefills what comes to this thread for that; False where the GPU refused, and the job has ended."""
        if job.route[job.step] is not Stage.llm_prefill:
            return True
        self._end_queue(job)
        if not self._do(job, uses_gpu=True):
            self._advance(job, is_done=False)
            return False
        job.step += 1
        return True

    def _join(self, job: Job) -> Job:
        job.began_ns = time.monotonic_ns()
        job.decode_span = self._span(job, Stage.llm_decode).begin()
        return job

    def _decode_some(self, batch: list[Job]) -> None:
        modalities = {job.arrival.modality for job in batch}
        modality = modalities.pop() if len(modalities) == 1 else Modality.mixed
        # A batch is as slow as its slowest member.
        factor = max(self._slowdown(Stage.llm_decode, job.arrival.modality) for job in batch)
        steps = service.DECODE_STEPS_PER_CALL
        members = [Member(job.arrival.id, job.arrival.modality, steps) for job in batch]
        with self._annotations.batch(Stage.llm_decode, modality, members):
            step_seconds = service.decode_step_seconds(len(batch)) * factor
            if self._is_eager:
                sequences = len(batch)
                self._gpu.eager(
                    Stage.llm_decode,
                    modality,
                    steps=steps,
                    step_seconds=step_seconds,
                    tokens=sequences,
                    sequences=sequences,
                )
            else:
                self._gpu.decode(
                    modality,
                    steps=steps,
                    step_seconds=step_seconds,
                    launches=max(1, round(service.DECODE_LAUNCHES * self._calls_scale)),
                )
        for job in batch:
            job.produced = min(job.produced + steps, job.arrival.output_tokens)
            job.request.tokens(job.produced)

    def _leave(self, job: Job) -> bool:
        if job.produced < job.arrival.output_tokens:
            return False
        if job.decode_span is not None:
            job.decode_span.end()
        self.ledger.record(job, Stage.llm_decode, job.began_ns, time.monotonic_ns())
        self._advance(job, is_done=True)
        return True


def _uses_gpu(stage: Stage) -> bool:
    return service.COSTS[stage].launches > 0
