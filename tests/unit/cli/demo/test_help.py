# SPDX-License-Identifier: Apache-2.0
from click.testing import CliRunner

from hotstage.cli.main import cli
from hotstage.simhost.fault_kinds import FAULTS


def test_the_help_names_every_fault_and_hard_negative():
    words = CliRunner().invoke(cli, ["demo", "--help"]).output.split("hotstage demo ")[0]
    faults, negatives = " ".join(words.split()).split("hard negatives")
    assert all(kind.name in (faults if kind.window else negatives) for kind in FAULTS)
