# SPDX-License-Identifier: Apache-2.0
"""`hotstage bench`: the published numbers, each command measuring on this host, in this run."""

from __future__ import annotations

import click

from hotstage.cli.bench.counting import counting
from hotstage.cli.bench.marks import marks
from hotstage.cli.bench.overhead import overhead
from hotstage.cli.bench.page import page
from hotstage.cli.bench.stages import stages


@click.group()
def bench() -> None:
    """Measure what probing costs, whether counts are exact and stages right (needs root)."""


bench.add_command(overhead)
bench.add_command(counting)
bench.add_command(stages)
bench.add_command(marks)
bench.add_command(page)
