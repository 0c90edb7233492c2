# SPDX-License-Identifier: Apache-2.0
"""What a server does to its own GPU when a fault says so: memory that is filled and cut, bursts of long
requests, one stream for all. What happened is kept for the truth; detection never reads this.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

from hotstage.simhost.faults import Fault
from hotstage.simhost.gpu import Gpu
from hotstage.simhost.threads import name_this_thread
from hotstage.simhost.truth import StageSpan
from hotstage.simhost.workload import Arrival
from hotstage.stages.stage import Modality, Stage

GIB = 1 << 30
PREPARE_SECONDS = 2.5
"""Memory is filled and cut so long before the fault begins: by itself that hurts nobody."""
VOLLEY_SECONDS = 1.0

SEED_TEXT_TOKENS = 4096
"""Of the seed's rule; a volley brings `severity` times as many, and twice `severity` × 512 visual ones."""
_TEXT_TOKENS, _VISUAL_TOKENS, _OUTPUT_TOKENS = 2048, 512, 24
_VISUAL_TOKEN_BYTES = 2352
_FIRST_NUMBER = 1_000_000
_BURST = "burst-"
_ALLOCATING = (Stage.vision_encode.name, Stage.llm_prefill.name)


@dataclass(frozen=True, slots=True)
class Scene:
    """`free_bytes` are left free in one piece (None: memory stays as it is), `cut_bytes` more in pages of
    which each holds something.
    """

    free_bytes: int | None = None
    cut_bytes: int = 0
    has_burst: bool = False
    has_one_stream: bool = False


SCENES = {
    "token-conflict": Scene(3 * GIB, 11 * GIB, has_burst=True),
    "tokens-with-room": Scene(5 * GIB, 11 * GIB, has_burst=True),
    "tokens-in-one-piece": Scene(3 * GIB, 0, has_burst=True),
    "cut-memory": Scene(3 * GIB, 11 * GIB),
    "shared-stream": Scene(has_one_stream=True),
}
"""By the fault's name. A hard negative is the fault without one of its terms."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that was done, for the truth; CLOCK_MONOTONIC. Bytes as the allocator itself has them."""

    what: str
    at_ns: int
    free_bytes: int | None = None
    largest_free_bytes: int | None = None
    requests: int | None = None


class Scenes:
    """Carries out the scenes of one instance, each in a thread of its own."""

    def __init__(
        self,
        faults: tuple[Fault, ...],
        instance: str,
        index: int,
        tag: str,
        gpu: Gpu,
        take: Callable[[Arrival], None],
    ) -> None:
        """`take` lets a request in; `tag` makes the ids of a run its own."""
        self._faults = [
            fault for fault in faults if fault.name in SCENES and fault.instance in (None, instance)
        ]
        self._index, self._tag = index, tag
        self._gpu, self._take = gpu, take
        self._numbers = itertools.count(_FIRST_NUMBER)
        self._happened: list[Happening] = []

    def start(self, start_ns: int, is_over: threading.Event) -> None:
        """Traffic starts at `start_ns`; nothing more is done once it is over."""
        for fault in self._faults:
            threading.Thread(
                target=self._play, args=(fault, start_ns, is_over), name=fault.name, daemon=True
            ).start()

    def happened(self, spans: Iterable[StageSpan]) -> list[dict[str, object]]:
        """What was done, and when a burst first allocated: the begin of its first stage on the GPU, by
        `spans` of all requests.
        """
        began = [
            span.began_ns for span in spans if span.request.startswith(_BURST) and span.stage in _ALLOCATING
        ]
        first = [Happening("allocation", min(began))] if began else []
        return [asdict(each) for each in (*self._happened, *first)]

    def _play(self, fault: Fault, start_ns: int, is_over: threading.Event) -> None:
        name_this_thread(fault.name)
        scene = SCENES[fault.name]

        def wait_until(seconds: float) -> bool:
            """False where traffic is over before."""
            left = start_ns / 1e9 + seconds - time.monotonic()
            return not is_over.wait(max(0.0, left))

        if scene.free_bytes is not None and wait_until(fault.start_seconds - PREPARE_SECONDS):
            self._squeeze(scene.free_bytes, scene.cut_bytes)
        if wait_until(fault.start_seconds) and scene.has_one_stream:
            self._gpu.share_stream(is_shared=True)
            self._note("one stream")
        for at_seconds in _volleys(fault) if scene.has_burst else ():
            if not wait_until(at_seconds):
                break
            self._volley(fault.severity, at_seconds)
        wait_until(fault.end_seconds)
        if scene.has_one_stream:
            self._gpu.share_stream(is_shared=False)
        if scene.free_bytes is not None:
            self._gpu.relieve()

    def _squeeze(self, free_bytes: int, cut_bytes: int) -> None:
        self._gpu.squeeze(free_bytes, cut_bytes)
        known = self._gpu.free_memory()
        if known is not None:
            self._note("memory", free_bytes=known[0], largest_free_bytes=known[1])

    def _volley(self, severity: float, at_seconds: float) -> None:
        count = max(1, round(severity * SEED_TEXT_TOKENS / _TEXT_TOKENS))
        self._note("volley", requests=count)
        for number in itertools.islice(self._numbers, count):
            self._take(
                Arrival(
                    at_seconds=at_seconds,
                    number=number,
                    id=f"{_BURST}{number - _FIRST_NUMBER:05d}-{self._tag}",
                    endpoint="/v1/vision",
                    modality=Modality.image,
                    instance=self._index,
                    media_tokens=_VISUAL_TOKENS,
                    text_tokens=_TEXT_TOKENS,
                    output_tokens=_OUTPUT_TOKENS,
                    media_bytes=_VISUAL_TOKENS * _VISUAL_TOKEN_BYTES,
                )
            )

    def _note(self, what: str, **figures: int) -> None:
        self._happened.append(Happening(what, time.monotonic_ns(), **figures))


def _volleys(fault: Fault) -> Iterator[float]:
    """When each comes, seconds from the start of traffic."""
    for number in itertools.count():
        at_seconds = fault.start_seconds + number * VOLLEY_SECONDS
        if at_seconds >= fault.end_seconds:
            return
        yield at_seconds
