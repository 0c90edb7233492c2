# SPDX-License-Identifier: Apache-2.0
from hotstage.probes.maps.conflict import Outcome
from hotstage.sinks import memory_metrics as metrics
from hotstage.sinks.memory import conflict_children


def test_every_outcome_is_told_under_one_name():
    outcomes = {outcome.name.lower(): 10**place for place, outcome in enumerate(Outcome)}
    children = dict(conflict_children(outcomes)[metrics.CONFLICTS])
    assert sum(children.values()) == sum(outcomes.values())
    assert len(children) <= metrics.CONFLICTS.cap
    assert children[("fits",)] == sum(outcomes[each] for each in ("few_tokens", "not_fragmented", "has_room"))


def test_nothing_is_told_before_something_was_judged():
    assert conflict_children(dict.fromkeys((outcome.name.lower() for outcome in Outcome), 0)) == {}
