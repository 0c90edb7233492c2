# SPDX-License-Identifier: Apache-2.0
"""Which breakers a window moves, by name and scope; which requests of a pulse are a scope's traffic. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.breaker.page import NAME_BYTES
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.stages.pulse import Pulse, Rows
from hotstage.stages.spans import OUTCOME_ERROR, OUTCOME_LOST, OUTCOME_OK
from hotstage.stages.stage import Modality, Stage
from hotstage.windows.window import AnomalyWindow


def scope_name(scope: Entity) -> str:
    """`stage:vision_encode:image`, `instance:i-0`, `gpu:GPU-…`, `endpoint:/v1/chat`, `host`."""
    if scope.kind is EntityKind.stage:
        return f"stage:{scope.stage}:{scope.modality}"
    if scope.kind is EntityKind.instance:
        return f"instance:{scope.instance}"
    if scope.kind is EntityKind.gpu:
        return f"gpu:{scope.gpu_uuid or scope.pci_bus_id}"
    if scope.kind is EntityKind.endpoint:
        return f"endpoint:{scope.endpoint}"
    if scope.kind is EntityKind.modality:
        return f"modality:{scope.modality}"
    return "host"


SCOPE_FORMS = (
    "host, stage:STAGE:MODALITY, modality:MODALITY, endpoint:PATH, instance:NAME, gpu:UUID or gpu:PCI-BUS-ID"
)
"""The names that a breaker can have, for people."""

# As NVML and the kernel log write them: in another case it would be a breaker that nobody asks for.
_GPU_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}")


def scope_named(name: str) -> Entity | None:
    """The scope whose breaker has this name: `scope_name` backwards. None for what is no such name."""
    if name == "host":
        return HOST
    kind, _, rest = name.partition(":")
    if not rest or not name.isprintable() or len(name.encode()) > NAME_BYTES:
        return None
    if kind == "stage":
        stage, _, modality = rest.partition(":")
        known = stage in Stage.__members__ and modality in Modality.__members__
        return Entity(EntityKind.stage, stage=stage, modality=modality) if known else None
    if kind == "modality":
        return Entity(EntityKind.modality, modality=rest) if rest in Modality.__members__ else None
    if kind == "gpu":
        if _GPU_UUID.fullmatch(rest):
            return Entity(EntityKind.gpu, gpu_uuid=rest)
        return Entity(EntityKind.gpu, pci_bus_id=rest) if _BUS_ID.fullmatch(rest) else None
    if kind == "endpoint":
        return Entity(EntityKind.endpoint, endpoint=rest)
    if kind == "instance":
        return Entity(EntityKind.instance, instance=rest)
    return None


def scopes_of(window: AnomalyWindow, kinds: Collection[str]) -> tuple[Entity, ...]:
    """The scopes that a window speaks of, of the kinds that get a breaker.

    A slow stage is about the stage, a hang or a death about the instance, an XID or a lost GPU about the
    GPU. Any other rule moves the breaker that its label `breaker` names (`stage`, `instance`, `gpu`,
    `endpoint`, `modality`, `host`), and none without it.
    """
    wanted = _KIND_OF_WINDOW.get(window.kind) or window.labels.get("breaker")
    if wanted is None or wanted not in kinds:
        return ()
    entity = window.entity
    if wanted == "host":
        return (HOST,)
    if wanted == "stage" and entity.stage and entity.modality:
        return (Entity(EntityKind.stage, stage=entity.stage, modality=entity.modality),)
    if wanted == "instance" and entity.instance:
        return (Entity(EntityKind.instance, instance=entity.instance),)
    if wanted == "gpu" and (entity.gpu_uuid or entity.pci_bus_id):
        bus = None if entity.gpu_uuid else entity.pci_bus_id
        return (Entity(EntityKind.gpu, gpu_uuid=entity.gpu_uuid, pci_bus_id=bus),)
    if wanted == "endpoint" and entity.endpoint:
        return (Entity(EntityKind.endpoint, endpoint=entity.endpoint),)
    if wanted == "modality" and entity.modality:
        return (Entity(EntityKind.modality, modality=entity.modality),)
    return ()


_KIND_OF_WINDOW = {
    "stage_latency": "stage",
    "alive_but_hung": "instance",
    "process_death": "instance",
    "token_conflict": "instance",
    "cpu_starvation": "instance",
    "gpu_xid": "gpu",
    "gpu_lost": "gpu",
}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one scope in one pulse."""

    inflight: int
    ended_well: int
    ended_badly: int


def traffic_of(scope: Entity, pulse: Pulse) -> Traffic:
    """Requests in the scope: those that went through the stage, ran on the instance, or all for GPU and host.

    Which GPU a request used is not known per request, so a GPU's breaker counts all of them.
    """
    ended, inflight = pulse.requests_ended, pulse.requests_open
    chosen, waiting = _in_scope(scope, ended, pulse), _in_scope(scope, inflight, pulse)
    outcomes = ended["outcome"][chosen]
    return Traffic(
        inflight=int(np.count_nonzero(waiting)),
        ended_well=int(np.count_nonzero(outcomes == OUTCOME_OK)),
        ended_badly=int(np.count_nonzero((outcomes == OUTCOME_ERROR) | (outcomes == OUTCOME_LOST))),
    )


def _in_scope(scope: Entity, requests: Rows, pulse: Pulse) -> NDArray[np.bool_]:
    every = np.ones(len(requests), np.bool_)
    if scope.kind is EntityKind.stage and scope.stage is not None and scope.stage in Stage.__members__:
        bit = np.uint64(1 << Stage[scope.stage])
        touched = (requests["stage_mask"] | requests["open_mask"]) & bit != 0
        return np.asarray(touched & _of_modality(scope, requests, mixed_too=True))
    if scope.kind is EntityKind.modality:
        return _of_modality(scope, requests, mixed_too=False)
    if scope.kind is EntityKind.instance:
        return np.asarray(requests["instance"] == pulse.names.instances.find(scope.instance or ""))
    if scope.kind is EntityKind.endpoint:
        return np.asarray(requests["endpoint"] == pulse.names.endpoints.find(scope.endpoint or ""))
    return every


def _of_modality(scope: Entity, requests: Rows, *, mixed_too: bool) -> NDArray[np.bool_]:
    if scope.modality is None or scope.modality not in Modality.__members__:
        return np.ones(len(requests), np.bool_)
    same = requests["modality"] == Modality[scope.modality]
    if mixed_too:
        # A stage's modality is the input it worked on; a request with several inputs goes through several.
        same |= requests["modality"] == Modality.mixed
    return np.asarray(same)
