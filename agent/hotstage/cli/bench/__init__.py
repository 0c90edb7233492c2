# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench`: the published numbers, each command measuring on this host, in this run."""

from __future__ import annotations

import click

from hotstage.cli.bench.counting import counting
from hotstage.cli.bench.overhead import overhead


@click.group()
def bench() -> None:
    """Measure what probing costs and whether counts are exact (needs root)."""


bench.add_command(overhead)
bench.add_command(counting)
