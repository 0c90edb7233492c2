# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from support.pulses import SECOND, process, pulse

from hotstage.config.conflict import ConflictConfig
from hotstage.detect.finding import Severity
from hotstage.detect.rules.conflict import TokenConflict
from hotstage.probes.samples import ConflictVerdict

START = 1000 * SECOND
MIB = 1 << 20
VERDICT = ConflictVerdict(
    at_ns=START,
    pid=100,
    tid=101,
    device=0,
    call="cuMemAllocAsync",
    stage=8,
    modality=1,
    request_hash=7,
    bytes=64 * MIB,
    visual_tokens=900,
    text_tokens=9000,
    tokens_basis="known",
    fragmentation_ratio=0.7,
    fragmentation_basis="torch",
    predicted_bytes=300 * MIB,
    headroom_bytes=100 * MIB,
    headroom_age_ns=100_000_000,
    held_back=0,
)


def observe(detector, at_ns, *verdicts):
    return detector.observe_pulse(pulse(at_ns, processes=[process()], conflicts=verdicts))


def test_a_verdict_is_a_finding_at_once_with_its_terms():
    (finding,) = observe(TokenConflict(ConflictConfig()), START, VERDICT)
    assert (finding.kind, finding.entity.instance, finding.entity.pid) == ("token_conflict", "i-0", 100)
    assert (finding.severity, finding.is_hard, finding.score) == (Severity.warning, True, 3.0)
    assert finding.labels == {"stage": "vision_encode", "modality": "image", "tokens": "known"}
    said = {item.column: (item.value, item.limit) for item in finding.evidence}
    assert said["predicted_bytes"] == (300 * MIB, 100 * MIB)
    assert said["visual_tokens"] == (900, 512) and said["text_tokens"] == (9000, 4096)
    assert said["memory_fragmentation_ratio"] == (0.7, 0.65)
    assert "300 MiB more, 100 MiB are left" in finding.summary


def test_what_is_estimated_or_not_known_is_said_and_trusted_less():
    detector = TokenConflict(ConflictConfig())
    (sure,) = observe(detector, START, VERDICT)
    guess = replace(
        VERDICT,
        pid=200,
        tokens_basis="estimated",
        fragmentation_ratio=None,
        fragmentation_basis="unknown",
    )
    unsure = observe(detector, START, guess)[1]
    assert unsure.confidence < sure.confidence
    assert (sure.severity, unsure.severity) == (Severity.warning, Severity.info)
    cut = next(item for item in unsure.evidence if item.column == "memory_fragmentation_ratio")
    assert cut.value is None and cut.note == "basis unknown: no term"
    assert unsure.entity.instance is None


def test_it_is_shown_until_the_last_verdict_is_old():
    detector = TokenConflict(ConflictConfig(active_seconds=5.0))
    observe(detector, START, VERDICT)
    (again,) = observe(detector, START + 3 * SECOND, replace(VERDICT, at_ns=START + 3 * SECOND, held_back=4))
    assert again.since_ns == START
    assert again.evidence[-1].value == 2 and again.evidence[-1].note == "4 more were not told"
    assert observe(detector, START + 7 * SECOND)
    assert observe(detector, START + 8 * SECOND) == []


def test_no_room_at_all_has_a_finite_score():
    (finding,) = observe(TokenConflict(ConflictConfig()), START, replace(VERDICT, headroom_bytes=0))
    assert finding.score == 100.0
