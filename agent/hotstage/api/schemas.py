# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of snapshots, recovery plans, finished requests and latency, from the types that make them.

`python -m hotstage.api.schemas` writes the files beside this module; a test compares them, and the parts of
`openapi.json` that repeat them, with the types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from hotstage.api.top_types import Top
from hotstage.frame.latency_types import Components, Latency
from hotstage.frame.memory_types import Memory
from hotstage.probes.kernel_table import Kernels
from hotstage.probes.stacks import Stacks
from hotstage.stages.recovery import RecoveryPlan
from hotstage.stages.snapshot_diff import SnapshotDiff
from hotstage.stages.snapshot_types import Snapshot
from hotstage.stages.waterfall_types import Requests, Waterfall

FILES: dict[str, type[msgspec.Struct]] = {
    "snapshot.schema.json": Snapshot,
    "snapshot_diff.schema.json": SnapshotDiff,
    "recovery_plan.schema.json": RecoveryPlan,
    "requests.schema.json": Requests,
    "waterfall.schema.json": Waterfall,
    "components.schema.json": Components,
    "latency.schema.json": Latency,
    "memory.schema.json": Memory,
    "top.schema.json": Top,
    "kernels.schema.json": Kernels,
    "stacks.schema.json": Stacks,
}
SERVED = (Snapshot, RecoveryPlan, Requests, Waterfall, Components, Latency, Memory, Kernels, Stacks)
"""What the HTTP API answers with; the difference of two snapshots and `top` are made by the command line."""


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """One self-contained schema, draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}


def openapi_components() -> dict[str, Any]:
    """The served types and their parts, as `components.schemas` of `openapi.json` has them."""
    _, components = msgspec.json.schema_components(SERVED, ref_template="#/components/schemas/{name}")
    return components


def text_of(kind: type[msgspec.Struct]) -> str:
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, kind in FILES.items():
        (Path(__file__).parent / name).write_text(text_of(kind))
