# SPDX-License-Identifier: Apache-2.0
"""At this moment, does a thread that encodes images or videos work on the stream of one that runs the
language model? Pure; what it means over time is judged in `detect`.

Only two threads at once count: a server of one thread waits for itself, on however many streams, and what one
thread does in turn is no sharing. Of the per-thread default stream (handle 2) each thread has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import NO_STAGE
from hotstage.stages.pulse import Rows
from hotstage.stages.stage import Stage

ENCODERS = (int(Stage.vision_encode), int(Stage.video_encode))
LANGUAGE = (int(Stage.llm_prefill), int(Stage.llm_decode), int(Stage.sample))
_ENCODES, _SPEAKS = 1, 2
_ROLES = np.zeros(256, np.uint8)
_ROLES[[*ENCODERS]], _ROLES[[*LANGUAGE]] = _ENCODES, _SPEAKS
_WHERE = ("tgid", "device", "launch_stream")
PER_THREAD = 2
"""CU_STREAM_PER_THREAD of cuda.h."""


@dataclass(frozen=True, slots=True)
class StreamLook:
    """A process in which both work on one GPU now. `stream` is the CUstream that they share (0: the default
    one), None: none. Stages and modality are those of two threads that share it, or of any two.
    """

    pid: int
    stream: int | None
    encoder: int
    modality: int
    language: int
    is_marked: bool
    """Both by marks; else a rule or a fingerprint says what one of them does."""


def looks(threads: Rows) -> tuple[StreamLook, ...]:
    """THREAD_DTYPE (T,) as of one moment → one for each process that does both on one device."""
    if not len(threads):
        return ()
    stage = np.where(threads["stage"] == NO_STAGE, threads["inferred_stage"], threads["stage"])
    # What it launched since its mark was not credited to a stream yet: it is at work, and on this one.
    is_working = threads["launch_total"] > threads["streamed_launch_total"]
    role = np.where(is_working, _ROLES.take(stage), 0)
    encodes, speaks = np.flatnonzero(role == _ENCODES), np.flatnonzero(role == _SPEAKS)
    if not len(encodes) or not len(speaks):
        return ()
    talkers = _Speakers(threads, speaks)
    found: dict[int, StreamLook] = {}
    columns = (threads[name][encodes].tolist() for name in _WHERE)
    for one, pid, device, stream in zip(encodes.tolist(), *columns, strict=True):
        other = talkers.beside(pid, device, stream)
        if other is None or (pid in found and found[pid].stream is not None):
            continue
        found[pid] = _look(threads[one], threads[other], int(stage[one]), int(stage[other]))
    return tuple(found.values())


class _Speakers:
    """Threads that run the language model, by where they do: each is looked at once, however many encode."""

    def __init__(self, threads: Rows, rows: NDArray[np.intp]) -> None:
        self._on_stream: dict[tuple[int, int, int], int] = {}
        self._in_place: dict[tuple[int, int], int] = {}
        columns = (threads[name][rows].tolist() for name in _WHERE)
        for row, pid, device, stream in zip(rows.tolist(), *columns, strict=True):
            self._on_stream.setdefault((pid, device, stream), row)
            self._in_place[pid, device] = row

    def beside(self, pid: int, device: int, stream: int) -> int | None:
        """One on that stream, else one of that process on that device, None for none."""
        other = self._in_place.get((pid, device))
        return other if stream == PER_THREAD else self._on_stream.get((pid, device, stream), other)


def _look(encoder: np.void, language: np.void, encoder_stage: int, language_stage: int) -> StreamLook:
    stream = int(encoder["launch_stream"])
    is_shared = stream == int(language["launch_stream"]) and stream != PER_THREAD
    is_marked = NO_STAGE not in (int(encoder["stage"]), int(language["stage"]))
    return StreamLook(
        pid=int(encoder["tgid"]),
        stream=stream if is_shared else None,
        encoder=encoder_stage,
        modality=int(encoder["modality"] if encoder["stage"] != NO_STAGE else encoder["inferred_modality"]),
        language=language_stage,
        is_marked=is_marked,
    )
