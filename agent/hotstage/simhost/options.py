# SPDX-License-Identifier: Apache-2.0
"""What the host is told on its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hotstage.simhost import faults
from hotstage.simhost.annotations import Mode


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the command line says."""

    directory: Path
    seed: int
    seconds: float | None
    faults: tuple[faults.Fault, ...]
    calls_scale: float
    mode: Mode = Mode.marks
    gpus: int = 1
    """How many GPUs each instance sees: its own alone, or before it its neighbour's, for the encoders."""


def parse_options(arguments: Sequence[str]) -> HostOptions:
    """Raises ConfigError for a bad fault; argparse ends the program for the rest."""
    parser = argparse.ArgumentParser(prog="python -m hotstage.simhost.host", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="for libraries and the truth file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=None, help="of traffic; default: until `stop`")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[@START[-END]][:SEVERITY]")
    parser.add_argument("--faults", type=Path, default=None, metavar="FILE.toml")
    parser.add_argument("--calls-scale", type=float, default=1.0, help="launches a stage, times this")
    parser.add_argument("--mode", choices=[str(mode) for mode in Mode], default=str(Mode.marks))
    parser.add_argument("--gpus", type=int, choices=(1, 2), default=1, help="that an instance sees")
    options = parser.parse_args(arguments)
    return HostOptions(
        directory=options.directory.resolve(),
        seed=options.seed,
        seconds=options.seconds,
        faults=(
            *(faults.parse_spec(spec) for spec in options.fault),
            *(faults.read_file(options.faults) if options.faults else ()),
        ),
        calls_scale=options.calls_scale,
        mode=Mode(options.mode),
        gpus=options.gpus,
    )
