# SPDX-License-Identifier: Apache-2.0
"""Which libraries are not probed, and by which entry: the operator's list, then the one that comes with
hotstage (`deny.toml`).

An entry matches where all that it names matches. What is unknown (no build-id, no driver) matches nothing.
"""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path

import msgspec

from hotstage.config.deny import DenyEntry
from hotstage.probes.loader.base import OpenLibrary

_DRIVER_VERSION = re.compile(r"(?:Kernel Module(?: for \w+)?|version:?) +([0-9]+(?:\.[0-9]+)+)")
_BOUND = re.compile(r"(<=|>=|==|<|>)([0-9][0-9.]*)")


@dataclass(frozen=True, slots=True)
class HostVersions:
    """What of an entry is the same for every library of this host; None = unknown."""

    driver: str | None
    architecture: str
    kernel: str

    @classmethod
    def read(cls, proc_root: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> HostVersions:
        """As of now; the driver's version from its own files."""
        return cls(_driver(proc_root, sys_root), platform.machine(), platform.release())


class DenyList:
    """`refusal` of a library: a sentence with the entry's name and reason, None where nothing denies it."""

    def __init__(self, entries: Sequence[DenyEntry], host: HostVersions) -> None:
        self._entries = tuple(entry for entry in entries if _fits_host(entry, host))

    @classmethod
    def of(cls, configured: Sequence[DenyEntry], host: HostVersions) -> DenyList:
        """The operator's entries and the shipped ones."""
        return cls((*configured, *shipped()), host)

    def refusal(self, library: OpenLibrary) -> str | None:
        for entry in self._entries:
            if _fits_library(entry, library):
                return f"denied by {entry.name!r}: {entry.reason}"
        return None


def shipped() -> tuple[DenyEntry, ...]:
    """The entries that come with hotstage."""
    text = files("hotstage.probes.restraint").joinpath("deny.toml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(tomllib.loads(text).get("deny", []), list[DenyEntry]))


def version_fits(wanted: str, version: str | None) -> bool:
    """A glob, or bounds that hold for the leading numbers of `version`; an unknown version fits none."""
    if version is None:
        return False
    bounds = _BOUND.findall(wanted)
    if not bounds:
        return fnmatchcase(version, wanted)
    return all(_holds(_numbers(version), sign, _numbers(limit)) for sign, limit in bounds)


def _fits_host(entry: DenyEntry, host: HostVersions) -> bool:
    return (
        (entry.architecture is None or entry.architecture == host.architecture)
        and (entry.kernel is None or version_fits(entry.kernel, host.kernel))
        and (entry.driver is None or version_fits(entry.driver, host.driver))
    )


def _fits_library(entry: DenyEntry, library: OpenLibrary) -> bool:
    return (
        (entry.library is None or entry.library == library.kind)
        and (entry.path is None or fnmatchcase(library.path, entry.path))
        and (entry.build_id is None or fnmatchcase(library.build_id or "", entry.build_id.lower()))
    )


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _holds(version: tuple[int, ...], sign: str, limit: tuple[int, ...]) -> bool:
    width = max(len(version), len(limit))
    left, right = (each + (0,) * (width - len(each)) for each in (version, limit))
    if sign == "<":
        return left < right
    if sign == ">":
        return left > right
    if sign == "<=":
        return left <= right
    return left >= right if sign == ">=" else left == right


def _driver(proc_root: Path, sys_root: Path) -> str | None:
    try:
        return (sys_root / "module/nvidia/version").read_text(encoding="ascii").strip()[:64] or None
    except (OSError, ValueError):
        pass
    try:
        text = (proc_root / "driver/nvidia/version").read_text(encoding="ascii", errors="replace")[:4096]
    except OSError:
        return None
    found = _DRIVER_VERSION.search(text)
    return found[1] if found else None
