# SPDX-License-Identifier: Apache-2.0
from support.pulses import MS, SECOND, process, pulse, request, span

from hotstage.detect.progress import Progress
from hotstage.stages.stage import Modality, Stage

START = 1000 * SECOND
PREFILL = 1 << Stage.llm_prefill


def observe(progress, at_ns, **others):
    waiting = [request(1, START, open_mask=others.pop("open_mask", PREFILL), updated_ns=at_ns)]
    rows = [process(launches=others.pop("launches", 0), tokens=others.pop("tokens", 0), open_requests=1)]
    progress.observe(pulse(at_ns, requests_open=waiting, processes=rows, **others))


def test_the_age_of_a_device_stage_stands_still_with_its_process():
    progress = Progress()
    observe(progress, START, launches=5)
    observe(progress, START + 2 * SECOND)
    assert progress.frozen_at(100, Stage.vision_encode, START + 2 * SECOND) == START


def test_a_launch_an_end_and_a_token_are_progress():
    for sign in (
        {"launches": 1},
        {"tokens": 3},
        {"ended": [span(Stage.llm_prefill, Modality.text, START, MS)]},
    ):
        progress = Progress()
        observe(progress, START)
        observe(progress, START + SECOND, **sign)
        assert progress[100].device_ns == START + SECOND


def test_the_end_of_a_stage_of_the_cpu_is_no_progress_of_the_device():
    progress = Progress()
    observe(progress, START)
    observe(progress, START + SECOND, ended=[span(Stage.tokenize, Modality.text, START, MS)])
    assert (progress[100].device_ns, progress[100].any_ns) == (START, START + SECOND)


def test_a_stage_of_the_cpu_ages_on_when_nobody_waits_for_the_device():
    progress = Progress()
    observe(progress, START, open_mask=1 << Stage.media_decode)
    observe(progress, START + 5 * SECOND, open_mask=1 << Stage.media_decode)
    now = START + 5 * SECOND
    assert progress.frozen_at(100, Stage.media_decode, now) == now


def test_the_longest_pause_that_ended_by_itself_is_remembered():
    progress = Progress()
    for at in (0, 1, 4, 5):
        observe(progress, START + at * SECOND, launches=1)
    assert progress[100].launch_gap.longest_ns == 3 * SECOND


def test_hung_time_is_taken_out_of_what_it_lies_in():
    progress = Progress()
    observe(progress, START, launches=1)
    progress[100].hung_ns = (START, START + 9 * SECOND)
    observe(progress, START + 9 * SECOND + 100 * MS, launches=1)
    hung = [progress.hung_between(100, START + at * SECOND, START + (at + 11) * SECOND) for at in (-1, 10)]
    assert hung == [9 * SECOND + 100 * MS, 0]


def test_a_process_that_has_gone_is_forgotten():
    progress = Progress()
    observe(progress, START)
    progress.observe(pulse(START + SECOND))
    assert progress.processes() == []
