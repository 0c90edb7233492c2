# SPDX-License-Identifier: Apache-2.0
"""What a number or a verdict is about: host, GPU, process, stage, endpoint, instance, route. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EntityKind(StrEnum):
    host = "host"
    gpu = "gpu"
    process = "process"
    stage = "stage"  # stage × modality
    endpoint = "endpoint"
    instance = "instance"
    route = "route"  # endpoint × instance
    modality = "modality"

    # Entities are keys everywhere; the hash of an enum is a call in Python, that of its string is not.
    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """An identity; absent parts are None. Two entities are the same thing exactly if they are equal."""

    kind: EntityKind
    stage: str | None = None
    modality: str | None = None
    endpoint: str | None = None
    instance: str | None = None
    gpu_uuid: str | None = None
    pci_bus_id: str | None = None
    pid: int | None = None

    def labels(self) -> dict[str, str | int]:
        """The parts that are present, JSON-ready: `{"stage": "vision_encode", "modality": "image"}`."""
        parts = {
            "stage": self.stage,
            "modality": self.modality,
            "endpoint": self.endpoint,
            "instance": self.instance,
            "gpu_uuid": self.gpu_uuid,
            "pci_bus_id": self.pci_bus_id,
            "pid": self.pid,
        }
        return {name: value for name, value in parts.items() if value is not None}

    def __str__(self) -> str:
        return " ".join(str(value) for value in self.labels().values()) or self.kind.value


HOST = Entity(EntityKind.host)
