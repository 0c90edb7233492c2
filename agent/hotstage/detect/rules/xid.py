# SPDX-License-Identifier: Apache-2.0
"""An XID: the GPU driver reports a fault of a GPU. A hard signal, shown at once, the same one once.

Most are over when the driver has told of them. After some the GPU needs a reset or the host a reboot: such a
one stands until something shows the GPU back or an operator says so, and what that was is its last word.
Nothing here sees a reset itself, so no sentence claims one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hotstage.config.settings import DetectConfig
from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.detect.rules.xid_recovery import NEEDS, Recovery
from hotstage.devices.samples import DeviceSample
from hotstage.frame.entity import Entity, EntityKind
from hotstage.probes.samples import XidEvent
from hotstage.stages.pulse import Pulse
from hotstage.text import normal_bus_id

KIND = "gpu_xid"

MEANINGS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "memory page fault",
    32: "corrupted push buffer",
    38: "driver firmware error",
    43: "GPU stopped processing",
    45: "preemptive clean-up after an earlier error",
    48: "double-bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "row remapping recorded",
    64: "row remapping failed",
    68: "video processor exception",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP firmware does not answer",
    120: "GSP firmware error",
    140: "unrecovered ECC error",
}
"""What NVIDIA's list of XIDs says, shortened; numbers not listed here are shown as they are."""

_APPLICATION_FAULTS = frozenset({13, 31, 43, 45, 68, 63, 92})
"""The application's fault or already contained: a warning. All others are critical."""

_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class _Active:
    event: XidEvent
    first_ns: int
    last_ns: int
    count: int
    is_repaired: bool = False
    """By an operator's word."""


class Xid:
    """Detector `gpu_xid`. The same XID of one GPU from two sources is one. Not thread-safe."""

    def __init__(self, config: DetectConfig) -> None:
        self.take_over(config)
        self._active: dict[tuple[str, int], _Active] = {}
        self._uuids: dict[str, str] = {}
        self._recovery = Recovery()

    def take_over(self, config: DetectConfig) -> None:
        """Those that are active last as long as this says from now on."""
        self._active_ns = round(config.xid_active_seconds * 1e9)
        self._until_reset = frozenset(config.xid_until_reset)

    def know_devices(self, devices: DeviceSample) -> None:
        """The GPUs as NVML has them: their names, and which are back after a reset.

        A GPU that NVML never had is named by its bus id; one that it has no more keeps its name.
        """
        self._uuids |= {normal_bus_id(bus): uuid for bus, uuid in devices.uuid_by_bus.items()}
        self._recovery.observe(devices, {bus for bus, xid in self._active if xid in self._until_reset})

    def repaired(self, gpu: Entity) -> None:
        """An operator says that this GPU is well again."""
        for (bus, xid), active in self._active.items():
            if bus == gpu.pci_bus_id or (gpu.gpu_uuid and self._uuids.get(bus) == gpu.gpu_uuid):
                self._active[bus, xid] = replace(active, is_repaired=True)

    def observe_pulse(self, pulse: Pulse) -> list[Finding]:
        """The XIDs of the last seconds (`xid_active_seconds` since the latest of a kind), those that stand
        until the GPU is back, and once each the last word on those that do not any more.
        """
        for event in pulse.xids:
            self._take(event)
        ended = {key for key, active in self._active.items() if not self._stands(*key, active, pulse.at_ns)}
        findings = [
            self._finding(bus, active, pulse.at_ns, is_over=(bus, xid) in ended)
            for (bus, xid), active in self._active.items()
        ]
        self._active = {key: active for key, active in self._active.items() if key not in ended}
        return findings

    def _take(self, event: XidEvent) -> None:
        key = (normal_bus_id(event.pci_bus_id), event.xid)
        known = self._active.get(key)
        if known is not None and not known.is_repaired:
            last_ns = max(known.last_ns, event.at_ns)
            self._active[key] = replace(known, last_ns=last_ns, count=known.count + 1)
        elif known is not None or len(self._active) < _REMEMBERED:
            self._active[key] = _Active(event, event.at_ns, event.at_ns, 1)

    def _stands(self, bus: str, xid: int, active: _Active, now_ns: int) -> bool:
        if active.is_repaired:
            return False
        if now_ns - active.last_ns < self._active_ns:
            return True
        return xid in self._until_reset and self._recovery.back_since(bus, active.last_ns) is None

    def _since(self, bus: str, active: _Active) -> str:
        """What NVIDIA has done after it, and what is known of the GPU since then; nothing for one that is
        over by itself.
        """
        if active.event.xid not in self._until_reset:
            return ""
        need = f"; NVIDIA's remedy is {NEEDS.get(active.event.xid, 'a reset of the GPU or a reboot')}"
        if active.is_repaired:
            return f"{need}; an operator has said since that the GPU is well"
        back = self._recovery.back_since(bus, active.last_ns)
        if back is None:
            return f"{need}, and nothing has shown the GPU back since"
        at_ns, sign = back
        return f"{need}; {(at_ns - active.last_ns) / 1e9:.0f} s later {sign}: it is taken to be back"

    def _finding(self, bus: str, active: _Active, now_ns: int, *, is_over: bool) -> Finding:
        xid = active.event.xid
        meaning = MEANINGS.get(xid, "see NVIDIA's list of XIDs")
        uuid = self._uuids.get(bus)
        told = f"The driver reported XID {xid} ({meaning}) for GPU {uuid or bus}"
        note = f"{active.event.source}: {active.event.text[:160]}"
        return Finding(
            detector=KIND,
            kind=KIND,
            entity=Entity(EntityKind.gpu, gpu_uuid=uuid, pci_bus_id=bus),
            since_ns=active.first_ns,
            at_ns=now_ns,
            score=1.0,
            limit=1.0,
            summary=told + self._since(bus, active),
            severity=Severity.warning if xid in _APPLICATION_FAULTS else Severity.critical,
            confidence=0.99,
            evidence=(
                Evidence("xid", float(xid), None, "", active.first_ns, note),
                Evidence("xid_count", float(active.count), 1.0, "", active.first_ns, "same XID while active"),
            ),
            is_hard=True,
            is_over=is_over,
        )
