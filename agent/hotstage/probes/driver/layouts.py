# SPDX-License-Identifier: Apache-2.0
"""tracefs's `format` text as field names, and what bcc is told of them. Pure text work."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from hotstage.probes.driver.table import Event, Use, index_of

_FIELD = re.compile(r"^\tfield:(?P<declaration>[^;]+);\toffset:\d+;\tsize:\d+;", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?:\[[^\]]*\])?$")


def fields_of(text: str) -> dict[str, bool]:
    """Field → whether it is a string elsewhere in the record (`__data_loc`); common ones are left out."""
    found: dict[str, bool] = {}
    for match in _FIELD.finditer(text):
        declaration = match["declaration"].strip()
        name = _NAME.search(declaration)
        if name and not name[1].startswith("common_"):
            found[name[1]] = declaration.startswith("__data_loc")
    return found


def macros(events: Iterable[Event], layouts: Mapping[str, Collection[str]]) -> list[str]:
    """What the programs of these events ask for: which are on, their places, their optional fields."""
    found: list[str] = []
    for event in events:
        found += [f"ON_{event.token}", f"EVENT_{event.token}={index_of(event)}"]
        found += [f"HAS_{event.token}_{name}" for name in event.optional if name in layouts[event.event]]
    return found


def counting_programs(events: Iterable[Event], layouts: Mapping[str, Mapping[str, bool]]) -> str:
    """C of a program for each event that is only counted, by ring where its layout names one."""
    return "".join(_counting(event, layouts[event.event]) for event in events if event.use is Use.COUNTED)


def _counting(event: Event, fields: Mapping[str, bool]) -> str:
    group, _, name = event.event.partition(":")
    ring = next((each for each in event.rings if fields.get(each)), None)
    by_ring = f"\tcount_ring((const char *)args + (args->data_loc_{ring} & 0xffff));\n" if ring else ""
    return (
        f"\nTRACEPOINT_PROBE({group}, {name})\n{{\n"
        f"\tcount_event({index_of(event)});\n{by_ring}\treturn 0;\n}}\n"
    )
