# SPDX-License-Identifier: Apache-2.0
"""The policy names the pinned stages, and no others."""

from typing import get_args

from hotstage.config.snapshots import StageName
from hotstage.stages.stage import Stage


def test_the_policys_stages_are_the_pinned_ones():
    assert get_args(StageName) == tuple(Stage.__members__)
