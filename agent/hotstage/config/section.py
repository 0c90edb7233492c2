# SPDX-License-Identifier: Apache-2.0
"""What a section of the configuration is, and the kinds of number in it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

PositiveFloat = Annotated[float, Meta(gt=0)]
PositiveInt = Annotated[int, Meta(gt=0)]
Ratio = Annotated[float, Meta(ge=0, le=1)]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all sections share: immutable, and an unknown key is an error."""
