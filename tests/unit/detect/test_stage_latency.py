# SPDX-License-Identifier: Apache-2.0
import pytest
from support.bench import windows_of
from support.pulses import MS, SECOND, process, pulse, span
from support.streams import START, Fault, Modality, Stage, Streams, Traffic

from hotstage.config.settings import DetectConfig
from hotstage.detect.base import Detectors
from hotstage.detect.demand import Demand
from hotstage.detect.finding import Severity
from hotstage.detect.progress import Progress
from hotstage.detect.stage_latency import StageLatency

ENCODER = Fault(Stage.vision_encode, Modality.image, 10, 20, 35)


def findings_at(traffic, seconds):
    """What fires at each of these moments."""
    detectors, seen = Detectors(DetectConfig()), {}
    for each in Streams(traffic):
        found = detectors.observe_pulse(each)
        at = round((each.at_ns - START) / 1e9, 1)
        if at in seconds:
            seen[at] = found
    return [seen[at] for at in seconds]


def test_a_slow_stage_is_named_with_its_modality_and_numbers():
    before, during, after = findings_at(Traffic(3, 45, (ENCODER,)), (19.9, 27.0, 44.5))
    assert before == [] and after == []
    (finding,) = during
    assert (finding.kind, finding.entity.stage, finding.entity.modality) == (
        "stage_latency",
        "vision_encode",
        "image",
    )
    assert finding.entity.instance is None
    columns = {item.column: item for item in finding.evidence}
    assert 7 < columns["stage_duration_ratio"].value < 14
    assert columns["stage_duration_ratio"].limit == 2.5
    assert finding.severity is Severity.critical
    assert "times its usual time" in finding.summary


def test_a_stage_that_never_ends_is_seen_by_its_age():
    stuck = Fault(Stage.vision_encode, Modality.image, 1e6, 20, 35)
    (during,) = findings_at(Traffic(3, 27, (stuck,)), (26.5,))
    (finding,) = during
    assert "oldest_age_seconds" in {item.column for item in finding.evidence}
    assert finding.entity.stage == "vision_encode"


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize(("begins", "seen_within"), [(21, 27), (24, 12), (28, 12)])
def test_a_second_weaker_fault_after_the_first_has_a_window_of_its_own(seed, begins, seen_within):
    """At 21 s the alarm of the first still fires, and the second may be a consequence of it."""
    align = Fault(Stage.cross_modal_align, Modality.video, 6, begins, begins + 40)
    first = Fault(Stage.vision_encode, Modality.image, 10, 12, 20)
    windows = windows_of(Traffic(seed, begins + 55, (first, align)))
    assert [(each.stage, each.modality) for each in windows] == [
        ("vision_encode", "image"),
        ("cross_modal_align", "video"),
    ]
    assert begins <= windows[1].opened <= begins + seen_within


def test_one_slow_instance_is_named():
    fault = Fault(Stage.vision_encode, Modality.image, 6, 20, 35, instance=1)
    (window,) = windows_of(Traffic(2, 45, (fault,)))
    assert (window.stage, window.instance) == ("vision_encode", "i-1")


def test_a_hang_is_not_taken_for_slow_stages():
    (window,) = windows_of(Traffic(4, 50, (Fault(factor=0, start=20, end=35, instance=0),)))
    assert (window.kind, window.instance) == ("alive_but_hung", "i-0")
    assert 25 <= window.opened <= 26
    assert 38 <= window.closed <= 40


def test_waiting_is_nobodys_fault():
    assert windows_of(Traffic(5, 45, (Fault(Stage.queue, None, 20, 20, 40),))) == []


def test_a_ramp_is_not_learned_away():
    slow_ramp = Fault(Stage.vision_encode, Modality.image, 6, 30, 150, "ramp")
    (window,) = windows_of(Traffic(6, 170, (slow_ramp,)))
    assert window.opened < 30 + 0.6 * 120 * (2.5 / 5), "before it is three and a half times as slow"
    assert 150 <= window.closed <= 160


def test_large_inputs_are_no_anomaly():
    assert windows_of(Traffic(7, 90, long_prefills=(30, 45, 60))) == []


def slow_after_a_minute(usual_ns, slow_ns, **config):
    """What fires after two seconds of a stage that takes `slow_ns` where it took `usual_ns` for a minute."""
    detectors, found = Detectors(DetectConfig(**config)), []
    for tick in range(620):
        at_ns = START + tick * 100 * MS
        lasts_ns = usual_ns if tick < 600 else slow_ns
        ended = span(Stage.detokenize, Modality.text, at_ns - lasts_ns, lasts_ns, request=tick)
        found = detectors.observe_pulse(pulse(at_ns, ended=[ended]))
    return found


def test_milliseconds_where_microseconds_are_usual_are_no_anomaly():
    assert slow_after_a_minute(1_000, 4 * MS) == []


@pytest.mark.parametrize(
    ("usual_ns", "slow_ns"), [(1_000, 8 * MS), (2 * MS, 10 * MS), (SECOND // 10, SECOND)]
)
def test_what_is_longer_than_the_floor_counts_as_before(usual_ns, slow_ns):
    (finding,) = slow_after_a_minute(usual_ns, slow_ns)
    assert finding.entity.stage == "detokenize"


def test_the_floor_is_a_setting():
    assert slow_after_a_minute(1_000, 4 * MS, stage_latency_floor_seconds=0.0)
    assert slow_after_a_minute(SECOND // 10, SECOND, stage_latency_floor_seconds=2.0) == []


def test_what_a_hang_took_whole_is_neither_usual_nor_slow():
    """Decodes of 50 ms; of those that ended in the hang of the first ten seconds no time was their own."""
    progress = Progress()
    detector = StageLatency(DetectConfig(), progress, Demand())
    for tick in range(300):
        at_ns = START + tick * 100 * MS
        ended = span(Stage.llm_decode, Modality.text, at_ns - 50 * MS, 50 * MS, request=tick, pid=7)
        progress.observe(pulse(at_ns, processes=[process(7)]))
        progress[7].hung_ns = (START - SECOND, START + 10 * SECOND)
        assert detector.observe_pulse(pulse(at_ns, ended=[ended])) == []
    (stream,) = detector._streams.values()
    assert stream.baseline.usual.seconds == pytest.approx(0.05)


def test_where_less_than_the_floor_is_usual_no_time_shorter_than_it_is_told():
    (finding,) = slow_after_a_minute(500, SECOND)
    assert "more than 200.0 times" in finding.summary
    assert "where less than 0.005 s is usual" in finding.summary
