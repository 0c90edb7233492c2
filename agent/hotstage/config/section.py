# SPDX-License-Identifier: Apache-2.0
"""What a section of the configuration is, and the kinds of value in it, each with its bounds.

A number is finite and small enough that it, in nanoseconds, still fits into 63 bits. A text says by its kind
what it holds (`HOLDS`), so that whoever shows a configuration knows what to hide.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import Meta, Struct

HOLDS = "holds"
"""Key of `Meta.extra`: "url", "path", "address" or "text"."""
SHAPE = "shape"
"""Key of `Meta.extra`: what is expected, for people, where a pattern says it."""
REMEDY = "remedy"
"""Key of `Meta.extra`: what to know before one of the words is chosen, a clause that ends with `: `."""

_PORT = r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|0*[1-5]?[0-9]{1,4})"
_HOST = r"(\[[0-9A-Fa-f:.]+\]|[^\s/?#@\[\]:\\]+)"

PositiveFloat = Annotated[float, Meta(gt=0, le=1e9)]
"""Seconds: up to 31 years."""
Days = Annotated[float, Meta(gt=0, le=36_500)]
Weight = Annotated[float, Meta(ge=0, le=1e9)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
PositiveInt = Annotated[int, Meta(gt=0, le=2**31 - 1)]
PositiveBytes = Annotated[int, Meta(gt=0, le=2**50)]

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z0-9_.-]+$", extra={HOLDS: "text"})]
Label = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\x00]+$", extra={HOLDS: "text"})]
Text = Annotated[
    str,
    Meta(max_length=4096, pattern=r"^[^\x00]*$", extra={HOLDS: "text", SHAPE: "a text without NUL"}),
]
PathText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4095,
        pattern=r"^[^\x00]+$",
        extra={HOLDS: "path", SHAPE: "a path without NUL"},
    ),
]
SocketPath = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=107,
        pattern=r"^[^\x00]+$",
        extra={HOLDS: "path", SHAPE: "a path without NUL"},
    ),
]
ListenAddress = Annotated[
    str,
    Meta(
        pattern=rf"^[^\s/]+:{_PORT}$",
        extra={HOLDS: "address", SHAPE: "address:port, such as 127.0.0.1:9178"},
    ),
]
BaseUrl = Annotated[
    str,
    Meta(
        pattern=rf"^https?://{_HOST}(:{_PORT})?(/[^\s?#@\\]*)?$",
        max_length=2048,
        extra={
            HOLDS: "url",
            SHAPE: "an http(s) URL such as http://127.0.0.1:4318, without user name, query and fragment;"
            " a secret belongs into the file that another key names",
        },
    ),
]
"""What paths are appended to."""
AnyUrl = Annotated[str, Meta(extra={HOLDS: "url"})]
"""Read elsewhere, where a wrong one stops nothing else."""


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all sections share: immutable, and an unknown key is an error."""


def said(kind: Any, key: str) -> str | None:
    """What a type says of itself under `HOLDS` or `SHAPE`; that of a union's or list's member counts too."""
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, Meta) and key in (meta.extra or {}):
            return str((meta.extra or {})[key])
    return next(filter(None, (said(each, key) for each in getattr(kind, "__args__", ()))), None)


def choices(kind: Any) -> tuple[str, ...]:
    """The words that a type allows, those of a list's or union's members too; empty where it is no choice."""
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    return next(filter(None, (choices(each) for each in getattr(kind, "__args__", ()))), ())
