# SPDX-License-Identifier: Apache-2.0
"""Classes of finished requests: exact counts, nearest ranks, null for too few."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.config.classes import ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.frame.request_statistics import FRESH_MAX, RequestStatistics
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.spans import OUTCOME_CANCELLED, OUTCOME_ERROR, OUTCOME_REFUSED

START = 1000 * SECOND


def ended(at_ns, seconds, modality=Modality.image, *, tokens=500, output=0, outcome=0):
    """A request whose prefill took half of its time."""
    took = round(seconds * SECOND)
    request = KernelRequest(at_ns, at_ns=at_ns - took)
    request.begin(Stage.llm_prefill, at_ns - took, modality=modality, tokens=tokens)
    request.end(Stage.llm_prefill, at_ns - took + took // 2)
    return request.finished(at_ns, outcome, output)


def kept(rows, *, now_ns=START + 10 * SECOND, **config):
    found = RequestStatistics(ClassesConfig(**config), FrameConfig())
    found.keep(START, np.zeros(0, FINISHED_DTYPE))
    found.keep(now_ns, np.array(rows, FINISHED_DTYPE))
    return found


def row_of(statistics_, fingerprint, size=None, now_ns=START + 10 * SECOND):
    table = statistics_.classes(now_ns)
    rows = table.fingerprints if size is None else table.classes
    return next(row for row in rows if (row.fingerprint, row.size) == (fingerprint, size))


def test_a_class_has_its_rate_mean_and_nearest_ranks():
    rows = [ended(START + n * 500 * MS, 0.1 * n) for n in range(1, 21)]
    row = row_of(kept(rows), "vlm")
    assert (row.requests, row.samples, row.rate) == (20, 20, 2.0)
    assert row.mean_seconds == pytest.approx(1.05)
    assert (row.p50_seconds, row.p95_seconds, row.p99_seconds) == pytest.approx((1.0, 1.9, 2.0))
    assert row_of(kept(rows), "vlm", "up_to_1K").p95_seconds == row.p95_seconds


def test_below_twenty_samples_quantiles_and_penalty_are_unknown():
    row = row_of(kept([ended(START + n * MS, 9.0) for n in range(1, 20)]), "vlm")
    assert (row.samples, row.p50_seconds, row.p95_seconds, row.p99_seconds) == (19, None, None, None)
    assert row.slo_penalty_ms is None
    assert row.mean_seconds == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("modality", "seconds", "penalty"),
    [
        (Modality.text, 0.6, 50.0),
        (Modality.image, 1.5, 300.0),
        (Modality.audio, 3.5, 700.0),
        (Modality.video, 6.0, 1000.0),
        (Modality.video, 4.0, 0.0),
    ],
)
def test_the_penalty_is_the_seeds(modality, seconds, penalty):
    (row,) = kept([ended(START + n * MS, seconds, modality) for n in range(20)]).classes(START).fingerprints
    assert row.slo_penalty_ms == pytest.approx(penalty)


def test_several_media_are_penalised_as_the_heaviest_of_them():
    rows = [ended(START + n * MS, 3.5, Modality.image) for n in range(20)]
    for row in rows:
        row["modality_words"][Modality.audio] = 1
    assert row_of(kept(rows), "vlm+audio").slo_penalty_ms == pytest.approx(0.7 * 1000)
    heavy = kept(rows, slo_weights={"image": 2.0}, slo_baseline_seconds={"image": 0.5})
    assert row_of(heavy, "vlm+audio").slo_penalty_ms == pytest.approx(2.0 * 3000)


def test_an_unknown_class_has_no_penalty_and_no_target():
    rows = [KernelRequest(n, at_ns=START).finished(START + 9 * SECOND) for n in range(1, 30)]
    row = row_of(kept(rows), "unknown", "unknown")
    assert (row.samples, row.p99_seconds) == (29, 9.0)
    assert (row.slo_penalty_ms, row.p99_target_seconds, row.token_equivalent_ms) == (None, None, None)


def test_a_class_tells_its_baseline_beside_its_target():
    """Sound beyond its target of 0.3 s is within its baseline of 2.5 s: no penalty, and both are told."""
    found = kept([ended(START, 1.0, Modality.audio) for _ in range(20)])
    row = row_of(found, "audio")
    told = (row.p99_target_seconds, row.within_target_ratio, row.slo_baseline_seconds, row.slo_penalty_ms)
    assert told == (0.3, 0.0, 2.5, 0.0)
    nobody = kept([KernelRequest(n, at_ns=START).finished(START + SECOND) for n in range(1, 30)])
    assert row_of(nobody, "unknown", "unknown").slo_baseline_seconds is None


def test_targets_are_those_of_the_configuration():
    rows = [ended(START, 1.0), ended(START, 1.0, Modality.audio)]
    found = kept(rows, target_seconds={"vlm": 1.5})
    assert [row.p99_target_seconds for row in found.classes(START).fingerprints] == [1.5, 0.3]


@pytest.mark.parametrize("late", [0, 1, 2, 19])
def test_a_class_has_its_p99_within_the_target_exactly_if_its_share_there_is_99_percent(late):
    rows = [ended(START + n * MS, 3.0 if n < late else 0.8) for n in range(100)]
    row = row_of(kept(rows), "vlm")
    assert row.within_target_ratio == pytest.approx((100 - late) / 100)
    assert (row.p99_seconds <= row.p99_target_seconds) == (row.within_target_ratio >= 0.99)


def test_without_a_target_or_with_too_few_samples_nothing_is_within_it():
    video = kept([ended(START, 1.0, Modality.video) for _ in range(20)])
    assert row_of(video, "video").within_target_ratio is None
    assert row_of(kept([ended(START, 1.0)] * 19), "vlm").within_target_ratio is None


def test_a_token_equivalent_is_what_one_of_them_costs_over_all_that_say_theirs():
    vision = ended(START, 1.0, tokens=900, output=100)
    vision["stages"][Stage.vision_encode]["tokens"], vision["stages"][Stage.vision_encode]["count"] = 800, 1
    vision["stages"][Stage.vision_encode]["modality"] = Modality.image
    silent = ended(START, 50.0, tokens=0)
    assert row_of(kept([vision, silent]), "vlm").token_equivalent_ms == pytest.approx(1000 / 1000)
    weighed = kept([vision], token_weights={"image": 0.25, "text": 2.0})
    assert row_of(weighed, "vlm").token_equivalent_ms == pytest.approx(1000 / (800 * 0.25 + 200 * 2))


def test_what_nobody_waited_for_is_counted_but_not_judged():
    rows = [
        ended(START, 1.0),
        ended(START, 3.0, outcome=OUTCOME_ERROR),
        ended(START, 90.0, outcome=OUTCOME_CANCELLED),
        ended(START, 0.0, outcome=OUTCOME_REFUSED),
    ]
    row = row_of(kept(rows), "vlm")
    assert (row.requests, row.samples, row.mean_seconds) == (3, 2, 2.0)


def test_the_window_forgets_and_the_count_does_not():
    found = kept([ended(START + SECOND, 1.0)])
    row = row_of(found, "vlm", now_ns=START + 62 * SECOND)
    assert (row.requests, row.samples, row.rate, row.mean_seconds) == (1, 0, 0.0, None)


def test_absurd_records_give_finite_numbers_and_known_classes():
    row = ended(START, 1.0, tokens=2**32 - 1, output=2**32 - 1)
    row["stages"]["tokens"], row["stages"]["count"] = 2**32 - 1, 2**16 - 1
    row["stages"]["total_ns"], row["stages"]["modality"] = 2**64 - 1, 255
    backwards = ended(START, 1.0)
    backwards["started_ns"] = 2**64 - 1
    found = kept([row, backwards] * 20)
    for each in found.classes(START).classes:
        values = [getattr(each, name) for name in each.__slots__]
        assert all(math.isfinite(value) for value in values if isinstance(value, float))
    assert {each.size for each in found.classes(START).classes} == {"over_128K", "up_to_1K"}


def test_nobody_asks_and_yet_what_waits_stays_bounded():
    found = RequestStatistics(ClassesConfig(), FrameConfig())
    block = np.array([ended(START, 1.0)] * 100, FINISHED_DTYPE)
    for _ in range(40):
        found.keep(START, block)
        assert sum(map(len, found._fresh)) < FRESH_MAX
    assert row_of(found, "vlm", now_ns=START).requests == 4000


def test_readers_beside_the_tick_lose_and_double_nothing():
    found = RequestStatistics(ClassesConfig(), FrameConfig())
    block = np.array([ended(START, 1.0)] * 40, FINISHED_DTYPE)
    is_over = threading.Event()

    def read():
        while not is_over.is_set():
            found.classes(START)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(200):
        found.keep(START, block)
    is_over.set()
    for reader in readers:
        reader.join(10)
    assert row_of(found, "vlm", now_ns=START).requests == 8000


def test_an_endpoint_called_as_one_without_a_name_is_shown_is_one_with_it():
    rows = [ended(START + n * MS, 1.0) for n in range(20)]
    for row, name in zip(rows, [b"", b"unknown", b"/a", b"other"] * 5, strict=True):
        row["endpoint"] = name
    table = kept(rows).classes(START + 10 * SECOND)
    assert [(row.endpoint, row.requests) for row in table.endpoints] == [
        ("other", 5), ("unknown", 10), ("/a", 5),
    ]  # fmt: skip
