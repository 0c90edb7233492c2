# SPDX-License-Identifier: Apache-2.0
"""Anomaly windows by hand."""

from __future__ import annotations

from hotstage.detect.finding import Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.windows.window import AnomalyWindow, Cause

_KINDS = {"stage_latency": EntityKind.stage, "gpu_xid": EntityKind.gpu, "alive_but_hung": EntityKind.instance}


def window(kind, *, window_id="w1", severity=Severity.critical, opened_ns=0, labels=None, **parts):
    return AnomalyWindow(
        id=window_id,
        kind=kind,
        severity=severity,
        entity=Entity(_KINDS.get(kind, EntityKind.endpoint), **parts),
        opened_ns=opened_ns,
        updated_ns=opened_ns,
        peak_ns=opened_ns,
        closed_ns=None,
        score=2.0,
        cause=Cause(kind, f"{kind} it is", 0.9, ()),
        evidence=(),
        findings=1,
        labels=labels or {},
    )
