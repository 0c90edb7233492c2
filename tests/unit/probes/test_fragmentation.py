# SPDX-License-Identifier: Apache-2.0
"""Fragmentation from segments and blocks: of known answers by hand, of random memory byte by byte."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from hotstage.probes.fragmentation import Basis, Fragmentation, from_blocks, from_sums


def rows(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, np.uint64).reshape(-1, 2)


def sizes(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_gaps_before_between_and_behind_blocks() -> None:
    #  100: [10 free][20 block][30 free][40 block]   300: [50 free]   400: [60 block]
    found = from_blocks(
        rows((300, 50), (100, 100), (400, 60)), rows((160, 40), (110, 20), (400, 60)), sizes(35, 20, 60)
    )
    assert found == Fragmentation(
        basis=Basis.TORCH,
        reserved_bytes=210,
        allocated_bytes=120,
        requested_bytes=115,
        largest_free_bytes=50,
        free_blocks=3,
        inactive_split_bytes=40,
    )
    assert found.free_bytes == 90
    assert found.external_ratio() == pytest.approx(40 / 90)
    assert found.split_ratio == pytest.approx(40 / 210)
    assert found.internal_ratio == pytest.approx(5 / 120)
    assert found.slack_ratio == pytest.approx(90 / 210)


def test_segments_side_by_side_are_not_one() -> None:
    found = from_blocks(rows((0, 100), (100, 100)), rows((0, 50), (150, 50)), sizes(50, 50))
    assert (found.largest_free_bytes, found.free_blocks, found.inactive_split_bytes) == (50, 2, 100)
    assert found.external_ratio() == 0.5


def test_nothing_free_has_no_fragmentation() -> None:
    found = from_blocks(rows((0, 100)), rows((0, 100)), sizes(90))
    assert math.isnan(found.external_ratio())
    assert (found.free_blocks, found.largest_free_bytes, found.slack_ratio) == (0, 0, 0)


def test_no_segment_has_nothing() -> None:
    found = from_blocks(rows(), rows(), sizes())
    assert (found.reserved_bytes, found.allocated_bytes, found.free_blocks) == (0, 0, 0)
    assert math.isnan(found.slack_ratio)
    assert math.isnan(found.internal_ratio)


def test_a_request_that_is_not_known_of_one_block_is_not_known_of_all() -> None:
    found = from_blocks(rows((0, 100)), rows((0, 10), (20, 10)), sizes(7, 0))
    assert found.requested_bytes is None
    assert math.isnan(found.internal_ratio)


def test_where_little_of_the_device_is_free_there_is_no_ratio() -> None:
    found = from_blocks(rows((0, 100)), rows((10, 50)), sizes(50))
    assert found.external_ratio(device_bytes=2500) == pytest.approx(0.2)
    assert math.isnan(found.external_ratio(device_bytes=2501))


def test_sums_give_slack_alone() -> None:
    found = from_sums(1000, 600, "attached late")
    assert (found.basis, found.slack_ratio, found.reason) == (Basis.POOL, 0.4, "attached late")
    for unknown in (found.external_ratio(), found.split_ratio, found.internal_ratio):
        assert math.isnan(unknown)
    assert (found.largest_free_bytes, found.free_blocks, found.requested_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("segments", "blocks", "said"),
    [
        (rows((0, 100), (50, 100)), rows(), "overlap"),
        (rows((0, 100)), rows((0, 20), (10, 20)), "overlap"),
        (rows((100, 100)), rows((50, 10)), "outside"),
        (rows((100, 100)), rows((190, 20)), "outside"),
        (rows(), rows((0, 1)), "outside"),
    ],
)
def test_what_cannot_be_is_refused(segments: np.ndarray, blocks: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_blocks(segments, blocks, np.ones(len(blocks), np.uint64))


def test_random_memory_counts_as_it_does_byte_by_byte() -> None:
    chance = random.Random(11)
    for _ in range(50):
        memory: list[tuple[int, bool]] = []  # (segment, is given out) of each byte, in order
        segments, blocks, at = [], [], 0
        for number in range(chance.randrange(1, 6)):
            at += chance.choice((0, 3))
            start, length = at, chance.randrange(1, 40)
            segments.append((start, length))
            while at < start + length:
                size = min(chance.randrange(1, 9), start + length - at)
                is_given = chance.random() < 0.5
                blocks += [(at, size)] if is_given else []
                memory += [(number, is_given)] * size
                at += size
        runs: list[tuple[int, int]] = []  # (segment, bytes) of each run of free bytes
        for index, (segment, is_given) in enumerate(memory):
            if is_given:
                continue
            if index and memory[index - 1] == (segment, False):
                runs[-1] = (segment, runs[-1][1] + 1)
            else:
                runs.append((segment, 1))
        used = {segment for segment, is_given in memory if is_given}
        chance.shuffle(segments)
        chance.shuffle(blocks)
        found = from_blocks(rows(*segments), rows(*blocks), np.ones(len(blocks), np.uint64))
        assert found.free_bytes == sum(size for _, size in runs)
        assert found.largest_free_bytes == max((size for _, size in runs), default=0)
        assert found.free_blocks == len(runs)
        assert found.inactive_split_bytes == sum(size for segment, size in runs if segment in used)
