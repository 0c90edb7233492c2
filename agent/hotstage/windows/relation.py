# SPDX-License-Identifier: Apache-2.0
"""Whether two findings are one story, and which of them is its cause. Pure."""

from __future__ import annotations

from hotstage.detect.finding import Finding
from hotstage.frame.entity import Entity
from hotstage.frame.request_costs import Penalties

HANG, XID, DEATH, LATENCY = "alive_but_hung", "gpu_xid", "process_death", "stage_latency"
CONFLICT, STARVATION = "token_conflict", "cpu_starvation"

_WEIGHTS = {DEATH: 4, XID: 4, HANG: 3, CONFLICT: 3, STARVATION: 3, LATENCY: 2}
"""What explains what: a dead process explains its hang, a hang or a want of CPUs explains slow stages; rules
explain least.
"""

CONSEQUENCE_SCORE = 0.6
"""A stage slowed by less than this part of the first one's excess is taken as dragged along by it."""

SAME_STAGE_SCORE = 1.25

STORY_NS = 15_000_000_000
"""Consequences show within this time of the first finding; what comes later is another story."""


def weight(finding: Finding) -> int:
    return _WEIGHTS.get(finding.kind, 1)


PENALTY_SHARE = 0.1
"""What an SLO penalty without end may add to a score: it decides between scores this close, no others."""


def rank(finding: Finding, penalties: Penalties) -> tuple[int, float]:
    """Sorts possible causes, the best first: by weight, then by score × (1 + 0.1 × p ÷ (1 s + p)), p the SLO
    penalty of the endpoint or modality it speaks of; one that is not known counts as none.
    """
    penalty = penalties.of(finding.entity) or 0.0
    return -weight(finding), -finding.score * (1 + PENALTY_SHARE * penalty / (1 + penalty))


def same_subject(first: Finding, second: Finding) -> bool:
    """One kind on one thing, even if the instance became known or unknown meanwhile."""
    if first.kind != second.kind:
        return False
    one, other = first.entity, second.entity
    if first.kind == LATENCY:
        return (one.stage, one.modality) == (other.stage, other.modality)
    if first.kind in (HANG, DEATH):
        return one.pid == other.pid
    return _without_stage(one) == _without_stage(other)


def is_consequence(later: Finding, first: Finding) -> bool:
    """Whether `later` is explained by `first`, the finding a window was opened for."""
    if later.since_ns > first.since_ns + STORY_NS:
        return False
    if first.kind == later.kind == LATENCY:
        if later.entity.stage == first.entity.stage:
            # Inputs of all kinds meet in one stage, or in one batch of it: the slowest kind is named.
            return _may_share_place(later, first) and later.score <= SAME_STAGE_SCORE * first.score
        return _may_share_place(later, first) and later.score < CONSEQUENCE_SCORE * first.score
    return weight(first) > weight(later) > 1 and _share_place(later, first)


def explains(later: Finding, first: Finding) -> bool:
    """Whether `later` is the better cause of the window that was opened for `first`."""
    return is_consequence(first, later)


def _places(finding: Finding) -> tuple[object, object, object]:
    return finding.entity.instance, finding.entity.pid, finding.entity.gpu_uuid


def _may_share_place(one: Finding, other: Finding) -> bool:
    """No known place of the one differs from the other's."""
    pairs = zip(_places(one), _places(other), strict=True)
    return all(left is None or right is None or left == right for left, right in pairs)


def _share_place(one: Finding, other: Finding) -> bool:
    """They may, and at least one place is known of both."""
    pairs = zip(_places(one), _places(other), strict=True)
    return _may_share_place(one, other) and any(left is not None and left == right for left, right in pairs)


def _without_stage(entity: Entity) -> tuple[object, ...]:
    return (entity.kind, entity.endpoint, entity.instance, entity.gpu_uuid, entity.pci_bus_id, entity.pid)
