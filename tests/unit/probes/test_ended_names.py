# SPDX-License-Identifier: Apache-2.0
"""Names of own stages outlive their process, until there are too many or its pid names stages anew."""

from __future__ import annotations

from hotstage.probes.ended_names import EndedNames


def test_the_names_of_the_ended_stand_beside_those_of_the_living() -> None:
    ended = EndedNames()
    ended.keep({(7, 32): "rerank", (7, 33): "draft"})
    assert ended.beside({(8, 32): "judge"}) == {(7, 32): "rerank", (7, 33): "draft", (8, 32): "judge"}


def test_whoever_comes_by_the_pid_has_its_own_names_only() -> None:
    ended = EndedNames()
    ended.keep({(7, 32): "rerank", (7, 33): "draft"})
    assert ended.beside({(7, 32): "judge"}) == {(7, 32): "judge"}
    ended.keep({(7, 32): "judge"})
    assert ended.beside({}) == {(7, 32): "judge"}


def test_the_oldest_go_when_there_are_too_many() -> None:
    ended = EndedNames(limit=3)
    for pid in range(5):
        ended.keep({(pid, 32): f"stage of {pid}"})
    assert list(ended.beside({})) == [(2, 32), (3, 32), (4, 32)]
    ended.keep({(9, stage): "many" for stage in range(32, 64)})
    assert len(ended.beside({})) == 3
