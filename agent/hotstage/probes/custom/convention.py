# SPDX-License-Identifier: Apache-2.0
"""What an operator's own program declares at its head, and what it may not use. Pure text work.

    // hotstage-probe: 1
    // hotstage-metric: NAME from MAP [by LABEL:TYPE, …]: HELP
    // hotstage-uprobe: FUNCTION /path/to/library SYMBOL          (hotstage-uretprobe: at its return)

Tracepoints need no line: `TRACEPOINT_PROBE(group, event)` is attached as it stands. Operators read
`deploy/probes.d/README.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hotstage.errors import ConfigError
from hotstage.probes.custom.preprocessing import preprocess, refusal

METRICS_MAX, LABELS_MAX, POINTS_MAX = 8, 4, 16
HELP_MAX = 120
CONVENTION = "deploy/probes.d/README.md"

_FILE = re.compile(r"([a-z][a-z0-9_]{0,23})\.bpf\.c")
_DIRECTIVE = re.compile(r"^//[ \t]*hotstage-([a-z]+):[ \t]*(.*?)[ \t]*$")
_METRIC = re.compile(
    r"(?P<name>[a-z][a-z0-9_]{0,47}) from (?P<map>[A-Za-z_]\w{0,31})"
    r"(?: by (?P<labels>[^:,]+:[^:,]+(?:,[^:,]+:[^:,]+)*))?: (?P<help>\S.*)"
)
_LABEL = re.compile(r"([a-z][a-z0-9_]{0,23}):(?:([us](?:8|16|32|64))|char\[(\d{1,2})\])")
_POINT = re.compile(r"(?P<function>[A-Za-z_]\w{0,63}) (?P<path>/\S{1,1000}) (?P<symbol>\S{1,500})")
_TRACEPOINT = re.compile(r"\bTRACEPOINT_PROBE\s*\(")
_FOREIGN = re.compile(
    r"\b(RAW_TRACEPOINT_PROBE|KFUNC_PROBE|KRETFUNC_PROBE|KMOD_RET|LSM_PROBE|BPF_ITER|"
    r"(?:kprobe|kretprobe|raw_tracepoint|kfunc|kretfunc|lsm|bpf_iter)__\w+)\b"
)
_RESERVED_LABELS = frozenset({"le", "quantile", "instance", "job"})


@dataclass(frozen=True, slots=True)
class Label:
    """One field of a map's key. `size` in bytes; `kind` is `u`, `s` or `char`."""

    name: str
    kind: str
    size: int

    @property
    def alignment(self) -> int:
        return 1 if self.kind == "char" else self.size


@dataclass(frozen=True, slots=True)
class CustomMetric:
    """`name` in full; a counter ends in `_total`, all others are gauges. Of one that ends in `_seconds` or
    `_seconds_total` the map holds nanoseconds.
    """

    name: str
    map: str
    labels: tuple[Label, ...]
    help: str

    @property
    def is_counter(self) -> bool:
        return self.name.endswith("_total")

    @property
    def scale(self) -> float:
        return 1e-9 if self.name.removesuffix("_total").endswith("_seconds") else 1.0

    def offsets(self) -> tuple[tuple[int, ...], int]:
        """Where each label begins in the key, and the key's size, as C lays them out."""
        at, places, widest = 0, [], 1
        for label in self.labels:
            at += -at % label.alignment
            places.append(at)
            at += label.size
            widest = max(widest, label.alignment)
        return tuple(places), at + -at % widest


@dataclass(frozen=True, slots=True)
class UserPoint:
    """A function of the program at a symbol of a library or program."""

    function: str
    path: str
    symbol: str
    on_return: bool


@dataclass(frozen=True, slots=True)
class CustomSpec:
    metrics: tuple[CustomMetric, ...]
    points: tuple[UserPoint, ...]


def name_of(file_name: str) -> str | None:
    """`block_io.bpf.c` → `block_io`; None for a name that could not be part of a metric's."""
    match = _FILE.fullmatch(file_name)
    return match[1] if match else None


def parse(name: str, path: str, text: str) -> CustomSpec:
    """What the file declares. Raises ConfigError with file, line and remedy."""
    metrics: list[CustomMetric] = []
    points: list[UserPoint] = []
    is_versioned = False
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        where, (verb, rest) = f"{path}:{number}", match.groups()
        if verb == "probe":
            if rest != "1":
                raise _refusal(where, f"convention {rest!r} is not known", "write `// hotstage-probe: 1`")
            is_versioned = True
        elif verb == "metric":
            metrics.append(_metric(name, where, rest))
        elif verb in ("uprobe", "uretprobe"):
            points.append(_point(where, rest, on_return=verb == "uretprobe"))
        else:
            raise _refusal(where, f"hotstage-{verb} is no directive", f"see {CONVENTION}")
    if not is_versioned:
        raise _refusal(path, "no line says which convention it keeps", "begin with `// hotstage-probe: 1`")
    _check_counts(path, metrics, points)
    _check_code(path, text, has_points=bool(points))
    return CustomSpec(tuple(metrics), tuple(points))


def _metric(name: str, where: str, rest: str) -> CustomMetric:
    match = _METRIC.fullmatch(rest)
    if match is None:
        raise _refusal(where, f"{rest!r} declares no metric", "NAME from MAP [by LABEL:TYPE, …]: HELP")
    labels = tuple(_label(where, each.strip()) for each in (match["labels"] or "").split(",") if each.strip())
    if len(labels) > LABELS_MAX or len({label.name for label in labels}) != len(labels):
        raise _refusal(where, "too many labels, or one twice", f"at most {LABELS_MAX}, each once")
    if len(match["help"]) > HELP_MAX or not match["help"].isprintable():
        raise _refusal(where, "the help is too long or not printable", f"at most {HELP_MAX} characters")
    return CustomMetric(f"hotstage_custom_{name}_{match['name']}", match["map"], labels, match["help"])


def _label(where: str, text: str) -> Label:
    match = _LABEL.fullmatch(text)
    if match is None or match[1] in _RESERVED_LABELS:
        raise _refusal(
            where, f"{text!r} is no label", "NAME:TYPE, with u8 … u64, s8 … s64 or char[N], N up to 64"
        )
    if match[3] is not None:
        size = int(match[3])
        if not 1 <= size <= 64:
            raise _refusal(where, f"char[{size}] of {match[1]}", "1 to 64 bytes")
        return Label(match[1], "char", size)
    return Label(match[1], match[2][0], int(match[2][1:]) // 8)


def _point(where: str, rest: str, *, on_return: bool) -> UserPoint:
    match = _POINT.fullmatch(rest)
    if match is None:
        raise _refusal(where, f"{rest!r} names no point", "FUNCTION /path/to/library SYMBOL")
    return UserPoint(match["function"], match["path"], match["symbol"], on_return)


def _check_counts(path: str, metrics: list[CustomMetric], points: list[UserPoint]) -> None:
    if not metrics or len(metrics) > METRICS_MAX:
        raise _refusal(path, f"{len(metrics)} metrics", f"declare 1 to {METRICS_MAX}")
    if len({metric.name for metric in metrics}) != len(metrics):
        raise _refusal(path, "a metric is declared twice", "give each a name of its own")
    if len(points) > POINTS_MAX:
        raise _refusal(path, f"{len(points)} points", f"at most {POINTS_MAX}")


def _check_code(path: str, text: str, *, has_points: bool) -> None:
    code = preprocess(path, text).code
    foreign = _FOREIGN.search(code)
    if foreign:
        raise refusal(
            path, code, foreign.start(), f"{foreign[1]} is not handed over",
            "TRACEPOINT_PROBE, or a hotstage-uprobe line",
        )  # fmt: skip
    if not has_points and not _TRACEPOINT.search(code):
        raise _refusal(path, "it attaches nothing", "TRACEPOINT_PROBE, or a hotstage-uprobe line")


def _refusal(where: str, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"{where}: {what}", remedy=remedy)
