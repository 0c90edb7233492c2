# SPDX-License-Identifier: Apache-2.0
"""The policy names the pinned stages, and no others."""

import msgspec
import pytest

from hotstage.config.snapshots import RecoveryConfig
from hotstage.stages.stage import Stage


def test_the_policys_stages_are_the_pinned_ones():
    named = {stage.name: True for stage in Stage}
    assert msgspec.convert({"stages": named}, RecoveryConfig).stages == named
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"stages": {"reranker": True}}, RecoveryConfig)
