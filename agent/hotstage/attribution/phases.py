# SPDX-License-Identifier: Apache-2.0
"""Prefill against decode by the work of a thread's bursts, in programs without CUDA graphs. Pure arithmetic.

A burst is what a thread launches from one wait to the next, more than 32 kernels. Its *head* is the mean over
its first 32 launches of log2 of their grid blocks, in doublings: a geometric mean, because one kernel that
copies a KV cache has more blocks than all others of a decode step together. Where a language model runs
eagerly:

- prefill and decode launch the same kernels, nearly as many;
- decode consumes one token for each that it brings back, so that of all bursts which bring back as much its
  head is the least; a prompt's is larger, though no more comes back;
- decode repeats itself, burst after burst, and what it copies to the device is nothing, or copies as small as
  what came back; a prompt is input.

Whatever shows less than all of that is not told: encoders, embeddings and classifiers (input with every
burst), denoising loops (runs of equal work on both sides), training, two models on one thread. A burst that
holds prompts and decode (chunked prefill) brings back more than its prompts' tokens; where such bursts are,
prefill is not told, only decode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.bursts import BURST_DTYPE, PREFILL_UNTOLD, PhaseLimits

DOUBLING = 256
"""`head_eighths` of a burst that has twice the blocks in each of its first 32 launches: 32 × 8 eighths."""
WINDOW = 2048
"""Bursts that are looked at, the last ones."""
MIN_DECODE = 64
MIN_PROMPTS = 5
SAME_MODEL = 0.3
"""How far the launches of a burst may be from the median, as a share of it."""
MOST_OTHERS = 0.05
"""Bursts of another model beside the prompts, as a share of them."""
NEAR, REPEATED, ABOVE = DOUBLING // 20, DOUBLING // 2, DOUBLING * 3 // 4
"""Differences of heads: the same work again; still decode's; a prompt's at least."""
LEAST_SHARE, CLEAR_SHARE = 0.5, 0.9
TOKENS_MOST = 4096
"""Bytes to the host in one burst: more is no sampled tokens."""
FEW_TOKENS = 32
"""Bytes to the host: what makes tokens makes few at some time, what makes features never does."""
SCALAR_BYTES = 16
PROMPT_BYTES = 64
BAND_MARGIN, GROWTH_MARGIN = DOUBLING // 10, DOUBLING
"""Beyond the heads that were seen: of the same batches; of a batch twice as large."""


@dataclass(frozen=True, slots=True)
class PhaseShape:
    """What the bursts of a thread say. `limits` None: neither phase is told, `why` says what is missing."""

    bursts: int
    limits: PhaseLimits | None
    why: str


NO_BURSTS = PhaseShape(0, None, "it has made no burst of more than 32 launches")


class ThreadPhases:
    """One thread's bursts over time; `advance` with those that the kernel has recorded since."""

    def __init__(self) -> None:
        self._bursts = np.zeros(0, BURST_DTYPE)
        self._least_output = 2**32 - 1
        self._said = self._agreeing = 0
        self.shape = NO_BURSTS
        """What counts: a verdict holds until two looks in succession have said otherwise."""

    def advance(self, bursts: NDArray[np.void]) -> PhaseShape:
        """`bursts` (BURST_DTYPE), the oldest first; none are no look at all."""
        if len(bursts):
            self._bursts = np.concatenate((self._bursts, bursts))[-WINDOW:]
            outputs = bursts["output_bytes"]
            self._least_output = int(outputs.min(initial=self._least_output, where=outputs > 0))
            self._hear(judge(self._bursts, self._least_output))
        return self.shape

    def _hear(self, shape: PhaseShape) -> None:
        is_told = shape.limits is not None
        self._agreeing = self._agreeing + 1 if is_told == bool(self._said) else 1
        self._said = int(is_told)
        if is_told == (self.shape.limits is not None) or self._agreeing >= 2:
            self.shape = shape
        else:
            self.shape = replace(self.shape, bursts=shape.bursts)


def judge(bursts: NDArray[np.void], least_output: int) -> PhaseShape:
    """What these bursts (BURST_DTYPE, the oldest first) say; each condition has its own words.

    `least_output`: bytes, the least above 0 that a burst of the thread ever brought back.
    """
    count = len(bursts)
    if count < MIN_DECODE:
        return PhaseShape(count, None, f"{count} bursts of launches, {MIN_DECODE} are the least")
    kinds = _Kinds.of(bursts, least_output)
    refusal = kinds.refusal()
    if refusal:
        return PhaseShape(count, None, f"of {count} bursts {refusal}")
    limits = kinds.limits()
    return PhaseShape(count, limits, f"of {count} bursts {kinds.why(limits)}")


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Bursts by kind, boolean (N,): of the model that most are of, those like decode, those like prompts."""

    head: NDArray[np.int64]
    input: NDArray[np.int64]
    least_input: NDArray[np.int64]
    output: NDArray[np.int64]
    is_model: NDArray[np.bool_]
    decode: NDArray[np.bool_]
    prompt: NDArray[np.bool_]
    least_output: int

    @staticmethod
    def of(bursts: NDArray[np.void], least_output: int) -> _Kinds:
        head, given, least, output, launches = (
            bursts[name].astype(np.int64)
            for name in ("head_eighths", "input_bytes", "least_input", "output_bytes", "launches")
        )
        is_model = np.abs(launches - np.median(launches)) <= SAME_MODEL * np.median(launches)
        above = head - _least_for_output(head, output, is_model)
        decode = is_model & (above <= REPEATED) & _repeats(head)
        return _Kinds(head, given, least, output, is_model, decode, is_model & (above >= ABOVE), least_output)

    def refusal(self) -> str | None:
        """Why these are no prefill and decode; None where they are."""
        decode, prompt = int(self.decode.sum()), int(self.prompt.sum())
        if decode < max(MIN_DECODE, LEAST_SHARE * len(self.head)):
            return f"{decode} repeat the least work that brings back as much, as decode does"
        if prompt < MIN_PROMPTS:
            return (
                f"{prompt} have clearly more work for no more output, as prompts have; "
                f"{MIN_PROMPTS} are the least"
            )
        if not self._brings_tokens():
            return f"too few bring tokens back ({_bytes(self.output)}): up to {TOKENS_MOST} bytes would be"
        if not self._has_no_input() and self.least_output > FEW_TOKENS:
            return f"none ever brought back {FEW_TOKENS} bytes or less, as one that makes few tokens does"
        if not self._feeds_itself() and np.percentile(self.input[self.decode], 90) <= SCALAR_BYTES:
            return (
                f"those with more work are given {_bytes(self.input[self.prompt])} as those that repeat are: "
                "a prompt is input, unless another burst took it in"
            )
        if not self._feeds_itself():
            return (
                f"those that repeat are given {_bytes(self.input[self.decode])} each, in copies of "
                f"{_bytes(self.least_input[self.decode])} and more, and bring back "
                f"{_bytes(self.output[self.decode])}: decode is given what it brought back, or nothing"
            )
        if self._prompts_repeat():
            return "those with more work repeat themselves as well, as denoising steps or batches do"
        strangers = int((~self.is_model & self._in_band(self.head)).sum())
        if strangers > MOST_OTHERS * decode:
            return f"{strangers} have as much work as decode and another number of launches: another model's"
        return None

    def why(self, limits: PhaseLimits) -> str:
        """What speaks for prefill and decode, in words."""
        prefill = (
            f"prompts from {limits.prefill_least / DOUBLING:.1f} doublings up"
            if limits.prefill_least != PREFILL_UNTOLD
            else f"prompts are not told: {self.unclear_prompts()}"
        )
        decode, prompt = self._told(self.decode), self._told(self.prompt)
        return f"{decode[0]} repeat themselves with {decode[1]}, {prompt[0]} have {prompt[1]}; {prefill}"

    def _told(self, chosen: NDArray[np.bool_]) -> tuple[int, str]:
        doublings = float(np.median(self.head[chosen])) / DOUBLING
        work = f"{doublings:.1f} doublings of grid blocks a launch"
        return int(chosen.sum()), f"{work} and bring back {_bytes(self.output[chosen])}"

    def limits(self) -> PhaseLimits:
        least, most = self._band()
        given = self.input[self.decode]
        prompts = self.input[self.prompt]
        is_tellable = not self.unclear_prompts()
        return PhaseLimits(
            decode_least=max(0, least),
            decode_most=most,
            decode_input=int(np.percentile(given, 99) * 1.25) + SCALAR_BYTES,
            prefill_least=most + (1 if self._has_no_input() else GROWTH_MARGIN)
            if is_tellable
            else PREFILL_UNTOLD,
            prompt_least=max(SCALAR_BYTES + 1, int(prompts.min()) // 2) if self._has_no_input() else 0,
            prompt_most=min(2**32 - 1, int(prompts.max()) * 4),
        )

    def unclear_prompts(self) -> str | None:
        """Why bursts with prompts cannot be told to hold nothing else; None where they can."""
        prompts = int(self.prompt.sum())
        mixed = prompts - int((self.prompt & self._is_pure()).sum())
        others = int((~self.is_model).sum())
        if mixed > (1 - CLEAR_SHARE) * prompts:
            return f"{mixed} of {prompts} bring back as much as decode, and may hold decode as well"
        if others > MOST_OTHERS * prompts:
            return f"{others} bursts have another number of launches and may be encoders"
        return None

    def _is_pure(self) -> NDArray[np.bool_]:
        """Brings back half of what the decode before or after it does, or one token and nothing ever was
        less. One token is 4 or 8 bytes: where decode is given its tokens by the host, 8 may be two of them.
        """
        decoded = np.maximum(self._decoded_before(1), self._decoded_before(-1)[::-1])
        one = self.least_output if self.least_output <= (8 if self._has_no_input() else 4) else 0
        return (self.output <= one) | (2 * self.output <= decoded)

    def _decoded_before(self, way: int) -> NDArray[np.int64]:
        """What the last decode before each burst brought back, 0 if there is none; `way` -1: in reverse."""
        decode, output = self.decode[::way], self.output[::way]
        places = np.maximum.accumulate(np.where(decode, np.arange(len(decode)), -1))
        return np.where(places >= 0, output[places], 0)

    def _brings_tokens(self) -> bool:
        decoded = self.output[self.decode]
        return bool(
            np.mean((decoded > 0) & (decoded <= TOKENS_MOST)) >= CLEAR_SHARE
            and np.mean(self.output[self.prompt] <= TOKENS_MOST) >= CLEAR_SHARE
        )

    def _feeds_itself(self) -> bool:
        if self._has_no_input():
            return True
        least, output = self.least_input[self.decode], self.output[self.decode]
        return bool(np.mean((least > 0) & (least <= 2 * output)) >= CLEAR_SHARE)

    def _has_no_input(self) -> bool:
        """Decode goes on with what is on the device; prompts come from the host."""
        return bool(
            np.percentile(self.input[self.decode], 90) <= SCALAR_BYTES
            and np.percentile(self.input[self.prompt], 10) >= PROMPT_BYTES
        )

    def _prompts_repeat(self) -> bool:
        """Chunks of one prompt do, but bring back less than decode."""
        follows = self.prompt[1:] & self.prompt[:-1] & (np.abs(np.diff(self.head)) <= NEAR)
        is_small = 2 * np.median(self.output[self.prompt]) <= np.median(self.output[self.decode])
        return bool(follows.sum() > LEAST_SHARE * self.prompt.sum() and not is_small)

    def _band(self) -> tuple[int, int]:
        low, high = np.percentile(self.head[self.decode], (1, 99))
        return int(low) - BAND_MARGIN, int(high) + BAND_MARGIN

    def _in_band(self, head: NDArray[np.int64]) -> NDArray[np.bool_]:
        low, high = self._band()
        return (head >= low) & (head <= high)


def _least_for_output(
    head: NDArray[np.int64], output: NDArray[np.int64], is_model: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The least head of all bursts of the model that bring back as much or more, for each burst."""
    counted = np.where(is_model, head, np.iinfo(np.int64).max)
    order = np.argsort(output, kind="stable")
    least = np.minimum.accumulate(counted[order][::-1])[::-1]
    first = np.searchsorted(output[order], output, side="left")
    return least[first]


def _repeats(head: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the burst before or after has the same work."""
    same = np.abs(np.diff(head)) <= NEAR
    return np.concatenate(([False], same)) | np.concatenate((same, [False]))


def _bytes(values: NDArray[np.int64]) -> str:
    low, high = int(np.percentile(values, 10)), int(np.percentile(values, 90))
    return f"{low} bytes" if low == high else f"{low} to {high} bytes"
