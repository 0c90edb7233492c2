# SPDX-License-Identifier: Apache-2.0
"""Bursts of launches as the kernel sums them up, and what it makes of the limits that user space gives it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.bpf.conftest import Probes, Workload

from hotstage.probes.maps.bursts import BURSTS, PREFILL_UNTOLD, PhaseLimits
from hotstage.probes.maps.inference import RuleEntry
from hotstage.probes.maps.layout import NO_STAGE, RuleFlag

LAUNCH, LAUNCH_EX = 1, 2
PREFILL, DECODE = 12, 13
HEAD, DOUBLING = 32, 256
LIMITS = PhaseLimits(
    decode_least=2 * DOUBLING,
    decode_most=4 * DOUBLING,
    decode_input=16,
    prefill_least=6 * DOUBLING,
    prompt_least=100,
    prompt_most=10_000,
)


def bursts_of(probes: Probes, workload: Workload, written: int = 0) -> list[tuple[int, ...]]:
    return [tuple(each) for each in probes.maps.bursts.since(workload.pid, workload.pid, written)[0].tolist()]


def counted(probes: Probes, workload: Workload, call: int = LAUNCH) -> dict[int, int]:
    found = {stage: probes.count(workload.pid, call, stage=stage) for stage in (PREFILL, DECODE, NO_STAGE)}
    return {stage: count for stage, count in found.items() if count}


@pytest.mark.parametrize("how", ["registers", "ex"])
def test_a_burst_is_its_head_its_launches_and_what_goes_in_and_out(
    probes: Probes, workload: Workload, how: str
) -> None:
    workload.call("copy", 1, 4000)
    workload.call("copy", 1, 24)
    workload.do("burst", how, 40, 8, 16)
    workload.do("burst", how, 35, 12, 64)
    workload.do("burst", how, HEAD, 1 << 20, 7)  # as short as no burst is: its output is the last one's
    workload.do("burst", how, 33, 0, 1)  # no grid: none that a driver takes
    workload.do("burst", how, 33, 1, 1)
    assert bursts_of(probes, workload) == [
        (HEAD * 3 * 8, 40, 4024, 24, 16),
        (HEAD * (3 * 8 + 4), 35, 0, 0, 64 + 7),
        (0, 33, 0, 0, 1),
    ], "the last one is still open for what comes back late"


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 127, 1000, 65535, (1 << 31) - 1])
def test_the_logarithm_is_right_within_its_steps(probes: Probes, workload: Workload, blocks: int) -> None:
    workload.do("burst", "-", 33, blocks, 4)
    workload.do("burst", "-", 33, 1, 4)
    ((head, *_),) = bursts_of(probes, workload)
    assert head / HEAD / 8 == pytest.approx(np.log2(blocks), abs=0.21)


def test_a_full_ring_gives_the_last_ones(probes: Probes, workload: Workload) -> None:
    for nth in range(BURSTS + 10):
        workload.do("burst", "-", 33, 1, nth)
    new, ended = probes.maps.bursts.since(workload.pid, workload.pid, 3)
    assert ended == BURSTS + 9
    assert new["output_bytes"].tolist() == list(range(10, BURSTS + 9))
    assert len(probes.maps.bursts.since(workload.pid, workload.pid, ended)[0]) == 0


def test_bursts_count_as_what_the_limits_say_after_their_head(probes: Probes, workload: Workload) -> None:
    workload.launch(0)
    assert probes.maps.bursts.set_limits(workload.pid, workload.pid, LIMITS)
    probes.maps.inference.set_rules(workload.pid, [RuleEntry(workload.pid, flags=RuleFlag.BY_WORK)])
    workload.do("burst", "-", 132, 8, 4)  # decode: three doublings, no input
    workload.call("copy", 1, 8)
    workload.do("burst", "-", 133, 8, 4)  # decode, a scalar copied before it
    workload.call("copy", 1, 400)
    workload.do("burst", "-", 232, 128, 4)  # prefill: seven doublings and a prompt
    assert counted(probes, workload) == {NO_STAGE: 3 * HEAD, DECODE: 201, PREFILL: 200}
    workload.call("copy", 1, 400)
    workload.do("burst", "-", 50, 8, 4)  # decode's work with a prompt
    workload.do("burst", "-", 50, 128, 4)  # a prompt's work without one
    workload.call("copy", 1, 20_000)
    workload.do("burst", "-", 50, 128, 4)  # pixels are longer than prompts
    workload.do("burst", "-", 50, 32, 4)  # between both
    workload.do("burst", "-", 20, 8, 4)  # a short piece
    assert counted(probes, workload) == {NO_STAGE: 3 * HEAD + 220, DECODE: 201, PREFILL: 200}
    workload.do("burst", "-", 42, 8, 4)
    assert counted(probes, workload)[DECODE] == 211
    probes.maps.bursts.set_limits(workload.pid, workload.pid, None)
    workload.do("burst", "-", 42, 8, 4)
    assert counted(probes, workload)[DECODE] == 211


def test_decode_that_does_not_repeat_itself_is_not_claimed(probes: Probes, workload: Workload) -> None:
    workload.launch(0)
    limits = PhaseLimits(DOUBLING, 8 * DOUBLING, 16, PREFILL_UNTOLD, 0, 10_000)
    probes.maps.bursts.set_limits(workload.pid, workload.pid, limits)
    probes.maps.inference.set_rules(workload.pid, [RuleEntry(workload.pid, flags=RuleFlag.BY_WORK)])
    workload.do("burst", "-", 42, 64, 4)
    assert counted(probes, workload)[DECODE] == 10
    workload.do("burst", "-", 42, 8, 4)  # a short prompt amid a large batch
    workload.do("burst", "-", 42, 64, 4)
    assert counted(probes, workload)[DECODE] == 10
    workload.do("burst", "-", 42, 64, 4)
    assert counted(probes, workload)[DECODE] == 20


def test_a_short_prompt_with_decodes_work_has_not_its_input(probes: Probes, workload: Workload) -> None:
    workload.launch(0)
    limits = PhaseLimits(DOUBLING, 8 * DOUBLING, 9000, PREFILL_UNTOLD, 0, 10_000)
    probes.maps.bursts.set_limits(workload.pid, workload.pid, limits)
    probes.maps.inference.set_rules(workload.pid, [RuleEntry(workload.pid, flags=RuleFlag.BY_WORK)])
    told = []
    for given in (4500, 4800, 600, 4800, 4500):
        before = counted(probes, workload).get(DECODE, 0)
        workload.call("copy", 1, given)
        workload.do("burst", "-", 42, 16, 64)
        told.append(counted(probes, workload).get(DECODE, 0) - before)
    assert told == [10, 10, 0, 0, 10]


def test_threads_with_rules_or_marks_record_no_bursts(probes: Probes, workload: Workload) -> None:
    probes.maps.inference.set_rules(workload.pid, [RuleEntry(0, 0, DECODE, 0)])
    for _ in range(3):
        workload.do("burst", "-", 40, 8, 4)
    assert bursts_of(probes, workload) == []
    probes.maps.inference.set_rules(workload.pid, [])
    for _ in range(3):
        workload.do("burst", "-", 40, 8, 4)
    assert len(bursts_of(probes, workload)) == 2
    workload.do("stage_begin", "-", DECODE, 0, 0)
    for _ in range(3):
        workload.do("burst", "-", 40, 8, 4)
    workload.do("stage_end", "-", DECODE, 0, 0)
    assert len(bursts_of(probes, workload)) == 2
