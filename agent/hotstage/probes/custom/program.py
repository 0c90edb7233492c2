# SPDX-License-Identifier: Apache-2.0
"""One operator's program in the kernel: compiled by bcc, attached, read. It judges nothing, keeps no text."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from contextlib import ExitStack

import numpy as np

from hotstage.errors import AttachError, ConfigError, HotstageError, LoadError
from hotstage.probes import bpf
from hotstage.probes.custom.convention import CustomMetric, CustomSpec, Label, UserPoint
from hotstage.probes.custom.files import CustomFile
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.loader.bcc_compiler import Compiled, CompileLimits, Function, compile_with_bcc
from hotstage.probes.maps.reader import HashReader
from hotstage.text import clean_name

LIMITS = CompileLimits(
    deadline_seconds=10.0, memory_bytes=2 << 30, said_bytes=8_000, map_bytes=64 << 20, reads_headers_only=True
)
ENTRIES_MAX = 4_096
"""Of a map that a metric is read from."""
LABEL_MAX = 64

_HASH, _ARRAY = 1, 2

Children = list[tuple[tuple[str, ...], float]]


class CustomProgram:
    """Attached as long as it is open. Not for two threads at once."""

    def __init__(self, spec: CustomSpec, compiled: Compiled, held: ExitStack) -> None:
        """`held`: its links and, below them, what was compiled."""
        self.spec = spec
        self._held = held
        self._readers: dict[str, HashReader] = {}
        for metric in spec.metrics:
            fd = compiled.maps[metric.map]
            check_map(metric, bpf.map_info(fd))
            self._readers[metric.name] = HashReader(
                fd,
                np.dtype([("raw", f"V{metric.offsets()[1] if metric.labels else 4}")]),
                np.dtype([("n", "<u8")]),
            )

    def read(self, metric: CustomMetric) -> Children:
        """Label values (cleaned) and the number. Entries that look alike once cleaned are one: a counter's
        are summed, of a gauge's the last stands.
        """
        keys, values = self._readers[metric.name].read()
        places, _ = metric.offsets()
        found: defaultdict[tuple[str, ...], int] = defaultdict(int)
        for key, value in zip(keys["raw"].tolist(), values["n"].tolist(), strict=True):
            labels = tuple(
                _shown(label, key[at : at + label.size])
                for label, at in zip(metric.labels, places, strict=True)
            )
            found[labels] = found[labels] + value if metric.is_counter else value
        return [(labels, value * metric.scale) for labels, value in found.items()]

    def close(self) -> None:
        """Twice does nothing: a kill switch and a newer version may both let it go."""
        self._held.close()


def load(file: CustomFile, spec: CustomSpec) -> CustomProgram:
    """Compile, load and attach. Raises HotstageError with file and line as far as compiler and verifier name
    them; nothing stays then.
    """
    try:
        return _load(file, spec, is_multi=True)
    except AttachError as error:
        if error.symbol is not None or not spec.points:
            raise
    return _load(file, spec, is_multi=False)


def check_map(metric: CustomMetric, info: bpf.MapInfo) -> None:
    """Raises ConfigError unless the map is what the metric's line says."""
    wanted = metric.offsets()[1] if metric.labels else 4
    if info.map_type not in (_HASH, _ARRAY):
        raise ConfigError(
            f"{metric.name}: map {metric.map} is no hash and no array", remedy="BPF_HASH or BPF_ARRAY"
        )
    if info.value_bytes != 8:
        raise ConfigError(
            f"{metric.name}: values of {metric.map} have {info.value_bytes} bytes", remedy="u64 values"
        )
    if info.max_entries > ENTRIES_MAX:
        raise ConfigError(
            f"{metric.name}: {metric.map} has {info.max_entries} entries",
            remedy=f"at most {ENTRIES_MAX}: BPF_HASH({metric.map}, key, u64, {ENTRIES_MAX})",
        )
    if info.key_bytes != wanted:
        raise ConfigError(
            f"{metric.name}: keys of {metric.map} have {info.key_bytes} bytes, the labels {wanted}",
            remedy="name each field of the key after `by`, in order, with its type",
        )


def _load(file: CustomFile, spec: CustomSpec, *, is_multi: bool) -> CustomProgram:
    attach_type = bpf.ATTACH_UPROBE_MULTI if is_multi else -1
    names = sorted({point.function for point in spec.points})
    maps = sorted({metric.map for metric in spec.metrics})
    try:
        compiled = compile_with_bcc(
            numbered(file.text, file.path.name),
            [Function(name, "kprobe", attach_type) for name in names],
            maps,
            limits=LIMITS,
        )
    except HotstageError as error:
        raise LoadError(f"{file.path}: {error.message}", remedy=_remedy(error)) from error
    held = ExitStack()
    held.callback(compiled.close)
    try:
        for point in spec.points:
            _attach(point, compiled.programs[point.function], held, is_multi=is_multi)
        return CustomProgram(spec, compiled, held)
    except BaseException:
        held.close()
        raise


def _attach(point: UserPoint, program: int, links: ExitStack, *, is_multi: bool) -> None:
    """One link; the file is opened once, and parsed and attached through that descriptor."""
    with ExitStack() as opened:
        try:
            fd = os.open(point.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            opened.callback(os.close, fd)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise AttachError("no regular file", path=point.path, symbol=point.symbol)
            functions = read_elf(fd).functions
        except (OSError, ValueError) as error:
            raise AttachError(
                f"{point.path}: {error}",
                path=point.path,
                symbol=point.symbol,
                remedy="name a library that is there",
            ) from error
        if point.symbol not in functions:
            raise AttachError(
                f"{point.path} exports no function {point.symbol}",
                path=point.path,
                symbol=point.symbol,
                remedy="`nm -D` lists what it exports",
            )
        offset, place = functions[point.symbol].offset, f"/proc/self/fd/{fd}"
        try:
            if is_multi:
                link = bpf.link_multi(
                    program, bpf.ATTACH_UPROBE_MULTI, place, [(offset, 0, 0)], on_return=point.on_return
                )
            else:
                link = bpf.link_perf_event(program, place, offset, 0, on_return=point.on_return)
        except OSError as error:
            raise AttachError(
                f"{point.symbol} of {point.path} could not be attached: {error.strerror}",
                path=point.path,
                symbol=None if is_multi else point.symbol,
                remedy="`hotstage doctor` says what uprobes need",
            ) from error
    links.callback(os.close, link)


def numbered(text: str, name: str) -> str:
    """`text` with its own line numbers kept through what bcc puts before functions and inside them, so that
    compiler and verifier name the operator's line. A line is what C calls one: what Python splits at, too
    (U+2028), would put the rest of a comment on a line of its own.
    """
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        lines.append(line)
        if line.rstrip().endswith("{"):
            lines.append(f'#line {number + 1} "{name}"')
    return "\n".join(lines) + "\n"


def _remedy(error: HotstageError) -> str | None:
    """What bcc's own remedy is but for two: libbpf cannot load this program instead, and a verifier's refusal
    looks like a missing privilege.
    """
    if error.remedy == "--loader libbpf" or "processed" in error.message:
        return "mend the program: the messages name its lines"
    return error.remedy


def _shown(label: Label, raw: bytes) -> str:
    if label.kind == "char":
        return clean_name(raw)[:LABEL_MAX]
    return str(int.from_bytes(raw, "little", signed=label.kind == "s"))
