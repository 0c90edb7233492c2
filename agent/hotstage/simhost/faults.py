# SPDX-License-Identifier: Apache-2.0
"""The faults that can be injected, how they are asked for, and what each does at a moment.

Pure: the host and the servers carry them out. Detection never reads this; the truth file does.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hotstage.errors import ConfigError
from hotstage.simhost.fault_kinds import FAULTS, SLOWDOWN, FaultKind
from hotstage.stages.stage import Modality, Stage

SHAPES = ("step", "ramp", "intermittent")
DEFAULT_START_SECONDS = 15.0
DEFAULT_LENGTH_SECONDS = 15.0
INTERMITTENT_PERIOD_SECONDS = 2.0

SERVER_STAGES = (
    Stage.media_fetch,
    Stage.media_decode,
    Stage.preprocess,
    Stage.tokenize,
    Stage.vision_encode,
    Stage.audio_encode,
    Stage.video_encode,
    Stage.cross_modal_align,
    Stage.llm_prefill,
    Stage.llm_decode,
    Stage.detokenize,
)
"""What the simulated server does, and so what can be slowed; `queue` is waiting, nothing is done in it."""

MAX_SEVERITY = 1000.0
MAX_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a run; times in seconds from the start of traffic."""

    name: str
    kind: str | None
    start_seconds: float
    end_seconds: float
    severity: float
    shape: str = "step"
    stage: str | None = None
    modality: str | None = None
    instance: str | None = None

    def is_active(self, seconds: float) -> bool:
        return self.start_seconds <= seconds < self.end_seconds

    def factor_at(self, seconds: float) -> float:
        """What the shape makes of the severity at this moment; 1 outside."""
        if not self.is_active(seconds):
            return 1.0
        if self.shape == "ramp":
            # Full after six tenths, so that a ramp has a plateau to be seen on.
            share = (seconds - self.start_seconds) / (0.6 * (self.end_seconds - self.start_seconds))
            return 1.0 + (self.severity - 1.0) * min(1.0, share)
        half = INTERMITTENT_PERIOD_SECONDS / 2
        if self.shape == "intermittent" and int((seconds - self.start_seconds) / half) % 2:
            return 1.0
        return self.severity

    def slows(self, stage: str, modality: str, instance: str) -> bool:
        return (
            self.kind == "stage_latency"
            and self.stage == stage
            and self.modality in (None, modality)
            and self.instance in (None, instance)
        )


def slowdown(faults: Sequence[Fault], seconds: float, stage: str, modality: str, instance: str) -> float:
    """How many times as long the stage takes for a piece of work begun at this moment."""
    factor = 1.0
    for fault in faults:
        if fault.slows(stage, modality, instance):
            factor *= fault.factor_at(seconds)
    return factor


def load_factor(faults: Sequence[Fault], seconds: float) -> float:
    """How many times as many requests arrive at this moment; 0 while idle."""
    factor = 1.0
    for fault in faults:
        if fault.name in ("load-ramp", "idle"):
            factor *= fault.factor_at(seconds)
    return factor


_SPEC = re.compile(
    r"(?P<name>[^@:]*)(?:@(?P<start>[^:-]*)(?:-(?P<end>[^:]*))?)?(?::(?P<severity>.*))?", re.DOTALL
)


def parse_spec(spec: str) -> Fault:
    """`NAME[@START[-END]][:SEVERITY]`; raises ConfigError naming thing, place and remedy."""
    place = f"in the fault {spec!r}"
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise ConfigError(f"{place}: not NAME[@START[-END]][:SEVERITY]", remedy="e.g. encoder-stall@15-30:10")
    kind = _kind_named(match["name"], place)
    start = _number(match["start"], "START", place, DEFAULT_START_SECONDS)
    end = _number(match["end"], "END", place, start + DEFAULT_LENGTH_SECONDS)
    severity = _number(match["severity"], "SEVERITY", place, kind.severity)
    return _checked(_fault_of(kind, start, end, severity), place)


def read_file(path: Path) -> tuple[Fault, ...]:
    """The `[[fault]]` tables of a TOML file; raises ConfigError as `parse_spec` does."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(
            f"the fault file {path} cannot be read: {error.strerror}", remedy="check the path"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the fault file {path} is not TOML: {error}", remedy="write [[fault]] tables"
        ) from None
    unknown = set(document) - {"fault"}
    tables = document.get("fault")
    if unknown or not isinstance(tables, list) or not tables:
        what = f"unknown key {sorted(unknown)[0]!r}" if unknown else "no [[fault]] table"
        raise ConfigError(f"{what} in the fault file {path}", remedy="write one [[fault]] table a fault")
    return tuple(_from_table(table, f"in fault {number} of {path}") for number, table in enumerate(tables, 1))


_TABLE_KEYS = ("name", "stage", "modality", "instance", "factor", "shape", "start", "end")


def _from_table(table: Any, place: str) -> Fault:
    if not isinstance(table, dict):
        raise ConfigError(f"{place}: not a table", remedy="write [[fault]]")
    for key in table:
        if key not in _TABLE_KEYS:
            raise ConfigError(f"{place}: unknown key {key!r}", remedy=_nearest(key, _TABLE_KEYS))
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{place}: no name", remedy='e.g. name = "slow-prefill"')
    known = {kind.name: kind for kind in FAULTS}
    if name not in known and "stage" not in table:
        raise ConfigError(
            f"{place}: {name!r} is no known fault and names no stage",
            remedy=f'add stage = "llm_prefill", or {_nearest(name, tuple(known))}',
        )
    kind = known.get(name, SLOWDOWN)
    start = _number(table.get("start"), "start", place, DEFAULT_START_SECONDS)
    fault = _fault_of(
        kind,
        start,
        _number(table.get("end"), "end", place, start + DEFAULT_LENGTH_SECONDS),
        _number(table.get("factor"), "factor", place, kind.severity),
    )
    changes = {
        key: _text(table, key, place)
        for key in ("name", "stage", "modality", "instance", "shape")
        if key in table
    }
    return _checked(Fault(**{**asdict(fault), **changes}), place)


def _fault_of(kind: FaultKind, start: float, end: float, severity: float) -> Fault:
    return Fault(
        name=kind.name,
        kind=kind.window,
        start_seconds=start,
        end_seconds=end,
        severity=severity,
        shape=kind.shape,
        stage=kind.stage,
        modality=kind.modality,
        instance=kind.instance,
    )


def _checked(fault: Fault, place: str) -> Fault:
    if not 0 <= fault.start_seconds < fault.end_seconds <= MAX_SECONDS:
        raise ConfigError(
            f"{place}: it ends at {fault.end_seconds:g} s and starts at {fault.start_seconds:g} s",
            remedy=f"seconds from the start of traffic: 0 <= START < END <= {MAX_SECONDS:g}",
        )
    if not 0 <= fault.severity <= MAX_SEVERITY:
        raise ConfigError(
            f"{place}: severity {fault.severity:g} is out of range", remedy=f"0 to {MAX_SEVERITY:g}"
        )
    if fault.kind == "stage_latency" and fault.severity < 1:
        raise ConfigError(
            f"{place}: a factor of {fault.severity:g} is no slowdown", remedy="a factor of 1 or more"
        )
    if fault.kind != "stage_latency" and fault.stage is not None:
        raise ConfigError(
            f"{place}: {fault.name} has no stage", remedy="leave `stage` out, or take another name"
        )
    for value, known in (
        (fault.shape, SHAPES),
        (fault.stage, tuple(stage.name for stage in SERVER_STAGES)),
        (fault.modality, tuple(Modality.__members__)),
        (fault.instance, ("i-0", "i-1")),
    ):
        if value is not None and value not in known:
            raise ConfigError(f"{place}: unknown {value!r}", remedy=_nearest(value, known))
    return fault


def _kind_named(name: str, place: str) -> FaultKind:
    for kind in FAULTS:
        if kind.name == name:
            return kind
    raise ConfigError(
        f"{place}: unknown fault {name!r}", remedy=_nearest(name, tuple(kind.name for kind in FAULTS))
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"one of: {', '.join(known)}"


def _text(table: dict[str, Any], key: str, place: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise ConfigError(f"{place}: {key} is not a string", remedy=f'e.g. {key} = "…"')
    return value


def _number(value: Any, what: str, place: str, otherwise: float) -> float:
    if value is None:
        return otherwise
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not math.isfinite(number) or isinstance(value, bool):
        raise ConfigError(
            f"{place}: {what} {value!r} is not a number", remedy="seconds and factors, e.g. 15 or 2.5"
        )
    return number
