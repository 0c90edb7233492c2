# SPDX-License-Identifier: Apache-2.0
"""The kill switch over HTTP: anybody may look, operators alone may move it."""

from __future__ import annotations

from hotstage.api.probes import no_probes
from hotstage.store.store import Changes
from hotstage.store.switches import SwitchMove


def switched(order, actor):
    return {**no_probes(), "state": order.state, "actor": actor, "reason": order.reason}


def test_anybody_may_look(serve):
    body = serve().ask("/v1/probes").json
    assert (body["state"], body["actor"], body["since"]) == ("on", None, None)


def test_root_on_the_socket_moves_it_and_is_named(serve, sources):
    served = serve(sources=sources(switch_probes=switched))
    answer = served.ask("/v1/probes", "POST", {"state": "off", "reason": "update"}, unix=True)
    assert answer.status == 200
    assert (answer.json["state"], answer.json["reason"]) == ("off", "update")
    assert answer.json["actor"].startswith("uid ")


def test_nobody_moves_it_over_loopback(serve, sources):
    served = serve(sources=sources(switch_probes=switched))
    answer = served.ask("/v1/probes", "POST", {"state": "off"})
    assert (answer.status, answer.code) == (403, "not_an_operator")


def test_an_order_that_is_none_is_refused(serve, sources):
    served = serve(sources=sources(switch_probes=switched))
    assert served.ask("/v1/probes", "POST", {"state": "maybe"}, unix=True).status == 400
    assert served.ask("/v1/probes", "POST", {"state": "off", "ttl": 3}, unix=True).status == 400


def test_the_last_moves_are_told_newest_first(serve):
    served = serve()
    moves = (SwitchMove(5, "off", "uid 0 (root)", "update"), SwitchMove(9, "on", "uid 7", None))
    served.api.store.commit([Changes(0, 0, switches=moves)])
    told = served.ask("/v1/probes").json["moves"]
    assert [(each["state"], each["actor"], each["at_ns"]) for each in told] == [
        ("on", "uid 7", 9),
        ("off", "uid 0 (root)", 5),
    ]
