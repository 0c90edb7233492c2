# SPDX-License-Identifier: Apache-2.0
"""One second of the host as a table: entities × columns. Read-only values; no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import Entity, EntityKind

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frame:
    """`values` is (E, C) float64 over `entities` and `columns.COLUMNS`; NaN = unknown or not applicable."""

    at_ns: int
    """CLOCK_MONOTONIC at the end of the second it describes."""
    entities: tuple[Entity, ...]
    values: Floats
    stale: frozenset[str] = frozenset()
    """Sources that are too old or lost something: `calls`, `devices`, `host`, `requests`."""
    _rows: dict[Entity, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.entities), len(COLUMNS)):
            raise ValueError(f"values {self.values.shape} do not fit {len(self.entities)} entities")
        self.values.flags.writeable = False
        self._rows.update((entity, row) for row, entity in enumerate(self.entities))

    def get(self, entity: Entity, column: str) -> float:
        """The value; NaN when unknown or when the entity is not in this frame. KeyError: no such column."""
        index = COLUMN_INDEX[column]
        row = self.row(entity)
        return math.nan if row is None else float(self.values[row, index])

    def row(self, entity: Entity) -> int | None:
        """The entity's row in `values`; None when it is not in this frame."""
        return self._rows.get(entity)

    def value(self, entity: Entity, column: str) -> float | None:
        """Like `get`, for objects and JSON: None when unknown."""
        number = self.get(entity, column)
        return None if math.isnan(number) else number

    def of_kind(self, kind: EntityKind) -> Iterator[Entity]:
        return (entity for entity in self.entities if entity.kind is kind)

    def __contains__(self, entity: Entity) -> bool:
        return entity in self._rows
