# SPDX-License-Identifier: Apache-2.0
import re

import pytest

from hotstage.frame.columns import COLUMNS, columns_of
from hotstage.frame.entity import EntityKind

UNITS = {
    "s": "_seconds",
    "bytes": "_bytes",
    "ratio": "_ratio",
    "W": "_watts",
    "°C": "_celsius",
    "Hz": "_hertz",
}


def test_names_are_unique_and_plain():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_unit_is_in_the_name_and_the_help_is_a_phrase(column):
    if column.unit in UNITS:
        assert column.name.endswith(UNITS[column.unit])
    assert column.entities and column.help and not column.help.endswith(".")


def test_every_kind_has_columns():
    assert all(columns_of(kind) for kind in EntityKind)
