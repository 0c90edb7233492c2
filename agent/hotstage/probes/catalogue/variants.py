# SPDX-License-Identifier: Apache-2.0
"""New variants of a known name: what a library exports beside the catalogue, and what it would count as.

A vendor adds `_v3`, `_ptsz`, `Ex` or `Config` to a name, and programs built against the new header call only
that one. Such a name is reported, never attached: where its arguments are is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from hotstage.probes.catalogue.spec import LibrarySpec

_NAME = re.compile(r"(?P<base>.+?)(?:_v(?P<version>\d+))?(?P<stream>_ptsz|_ptds)?$", re.DOTALL)
_EXTENSIONS = ("ExC", "Ex", "Config")


def new_variants(spec: LibrarySpec, exported: Iterable[str]) -> dict[str, str]:
    """Exported name without a row → the catalogued name that it is a variant of.

    Versions below the catalogued one are older, and names that `spec` ignores are no variants.
    """
    listed, bases = _known(spec)
    found = {}
    for name in exported:
        if name in listed or name in spec.ignored:
            continue
        like = _like(name, bases)
        if like is not None:
            found[name] = like
    return dict(sorted(found.items()))


def _like(name: str, bases: dict[str, tuple[int, str]]) -> str | None:
    base, version = _split(name)
    known = bases.get(base)
    if known is not None:
        return known[1] if version >= known[0] else None
    for extension in _EXTENSIONS:
        if base.endswith(extension) and base.removesuffix(extension) in bases:
            return bases[base.removesuffix(extension)][1]
    return None


def _split(name: str) -> tuple[str, int]:
    """The name without its endings, and its version; a bare name is the first one."""
    match = _NAME.fullmatch(name)
    assert match is not None
    return match["base"], int(match["version"] or 1)


@cache
def _known(spec: LibrarySpec) -> tuple[frozenset[str], dict[str, tuple[int, str]]]:
    """All names that have a row, and for each base its newest version and that row's name."""
    bases: dict[str, tuple[int, str]] = {}
    for call in spec.calls:
        for symbol in call.symbols:
            base, version = _split(symbol)
            if version >= bases.get(base, (0, ""))[0]:
                bases[base] = (version, call.name)
    return frozenset(spec.by_symbol()), bases
