# SPDX-License-Identifier: Apache-2.0
"""The table of faults and hard negatives that can be asked for by name; how is in `faults.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A fault by name. `window` is the kind of window it should cause; None: a hard negative, none at all."""

    name: str
    does: str
    window: str | None
    severity: float
    severity_means: str
    stage: str | None = None
    modality: str | None = None
    shape: str = "step"
    instance: str | None = None
    """Where it happens, unless a file says otherwise; None: everywhere."""


FAULTS = (
    FaultKind(
        name="encoder-stall",
        does="the image encoder takes longer",
        window="stage_latency",
        severity=10.0,
        severity_means="so many times as long",
        stage="vision_encode",
        modality="image",
    ),
    FaultKind(
        name="hang",
        does="one instance stays alive and healthy, but no wait for its GPU returns",
        window="alive_but_hung",
        severity=1.0,
        severity_means="nothing",
        instance="i-0",
    ),
    FaultKind(
        name="xid",
        does="the GPU driver logs an error of one instance's GPU, which is reset at the end",
        window="gpu_xid",
        severity=79.0,
        severity_means="the error's number",
        instance="i-0",
    ),
    FaultKind(
        name="token-conflict",
        does="bursts of long requests with images meet a GPU whose free memory is little, and cut up",
        window="token_conflict",
        severity=4.0,
        severity_means="so many times 4,096 text tokens in a burst, and twice as many times 512 visual ones",
        instance="i-0",
    ),
    FaultKind(
        name="shared-stream",
        does="one instance puts its encoders and its language model on one stream",
        window="shared_stream",
        severity=1.0,
        severity_means="nothing",
        instance="i-0",
    ),
    FaultKind(
        name="cpu-starve",
        does="the CPU quota of one instance is cut, so that its threads wait for a CPU with work at hand",
        window="cpu_starvation",
        severity=30.0,
        severity_means="so many times less CPU than its quota",
        instance="i-0",
    ),
    FaultKind(
        name="load-ramp",
        does="more requests arrive, as many as the host can serve",
        window=None,
        severity=2.5,
        severity_means="so many times as many",
        shape="ramp",
    ),
    FaultKind(
        name="tokens-with-room",
        does="the same bursts, and memory as cut, but room for all of them",
        window=None,
        severity=3.0,
        severity_means="as of token-conflict",
        instance="i-0",
    ),
    FaultKind(
        name="tokens-in-one-piece",
        does="the same bursts, and as little memory, but in one piece",
        window=None,
        severity=4.0,
        severity_means="as of token-conflict",
        instance="i-0",
    ),
    FaultKind(
        name="cut-memory",
        does="memory as little and as cut, but no bursts: few tokens",
        window=None,
        severity=0.0,
        severity_means="nothing",
        instance="i-0",
    ),
    FaultKind(name="idle", does="no requests arrive", window=None, severity=0.0, severity_means="nothing"),
)

SLOWDOWN = FaultKind(
    name="slowdown",
    does="any stage takes longer; only in a fault file, which names the stage",
    window="stage_latency",
    severity=10.0,
    severity_means="so many times as long",
)
