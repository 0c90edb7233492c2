# SPDX-License-Identifier: Apache-2.0
"""Whether two findings are one story, and which of them is its cause. Pure."""

from __future__ import annotations

from hotstage.detect.finding import Finding
from hotstage.detect.rules.xid_recovery import NEEDS
from hotstage.frame.entity import Entity
from hotstage.frame.request_costs import Penalties

HANG, XID, DEATH, LATENCY = "alive_but_hung", "gpu_xid", "process_death", "stage_latency"
CONFLICT, STARVATION = "token_conflict", "cpu_starvation"
GPU_LOST = "gpu_lost"
"""The built-in rule for what NVML says; the driver says the same by an XID, a little earlier or later."""

_OF_SERVERS = frozenset({HANG, DEATH, LATENCY})
_CLEAN_UP = 45.0
"""The XID by which the driver tells that it cleans up after what ended: a consequence itself."""

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
    if (first.kind, later.kind) == (XID, GPU_LOST):
        return _number(first) in NEEDS and _is_same_gpu(later, first)
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


def breaks_server(xid: Finding, last_ns: int, later: Finding, gpu_uuid: str | None) -> bool:
    """Whether an XID that fired until `last_ns` explains what became of a server on `gpu_uuid`. Apart from
    `is_consequence`: the server has a window, and a breaker, of its own, which end when it is well again.
    """
    return (
        xid.kind == XID
        and later.kind in _OF_SERVERS
        and gpu_uuid is not None
        and xid.entity.gpu_uuid == gpu_uuid
        and _number(xid) != _CLEAN_UP
        and xid.since_ns - STORY_NS <= later.since_ns <= last_ns
    )


def _number(xid: Finding) -> float | None:
    return next((each.value for each in xid.evidence if each.column == "xid"), None)


def _is_same_gpu(one: Finding, other: Finding) -> bool:
    left, right = one.entity, other.entity
    if left.gpu_uuid is not None and right.gpu_uuid is not None:
        return left.gpu_uuid == right.gpu_uuid
    return left.pci_bus_id is not None and left.pci_bus_id == right.pci_bus_id


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
