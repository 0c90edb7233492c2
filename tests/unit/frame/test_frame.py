# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame

I0 = Entity(EntityKind.instance, instance="i-0")


@pytest.fixture
def frame():
    values = np.full((2, len(COLUMNS)), np.nan)
    values[1, COLUMN_INDEX["inflight"]] = 3
    return Frame(1, (HOST, I0), values)


def test_a_value_is_found_by_entity_and_column(frame):
    assert frame.get(I0, "inflight") == 3.0
    assert frame.value(I0, "inflight") == 3.0
    assert I0 in frame and list(frame.of_kind(EntityKind.instance)) == [I0]


def test_unknown_is_nan_in_numbers_and_none_in_objects(frame):
    stranger = Entity(EntityKind.instance, instance="i-9")
    for entity in (HOST, stranger):
        assert math.isnan(frame.get(entity, "inflight"))
        assert frame.value(entity, "inflight") is None
    with pytest.raises(KeyError):
        frame.get(I0, "inflght")


def test_a_frame_cannot_be_changed(frame):
    with pytest.raises(ValueError, match="read-only"):
        frame.values[0, 0] = 1


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="do not fit"):
        Frame(1, (HOST,), np.zeros((2, len(COLUMNS))))
