# SPDX-License-Identifier: Apache-2.0
"""The marks without their extension are the same to a server."""

from __future__ import annotations

import hotstage_marks
from hotstage_marks import _native, _silent


def test_both_have_the_same_names():
    on_top = {"is_native", "embedding", "staged"}
    public = {name for name in hotstage_marks.__all__ if name not in on_top}
    assert public <= set(dir(_native))
    assert public <= set(dir(_silent))
    for name in ("Batch", "Request", "Scope"):
        native = {member for member in dir(getattr(_native, name)) if not member.startswith("__")}
        silent = {member for member in dir(getattr(_silent, name)) if not member.startswith("_")}
        assert native == silent


def test_a_request_is_current_and_has_the_same_hash():
    with _silent.request("r-1") as request:
        assert _silent.current_request() is request
        with _silent.stage("vision_encode", tokens=5) as scope:
            assert scope.tokens == 5
    assert _silent.current_request() is None
    for rid in ("a", "é" * 50, "", None):
        assert _silent.request_hash(rid) == _native.request_hash(rid)


def test_nonsense_raises_nothing():
    with _silent.request(object()), _silent.span(None, "x", modality=3, colour="red"):
        _silent.tokens()
    _silent.request_begin().end("ok", output_tokens=object())
    assert _silent.request_hash("\ud800") == 0
    with _silent.batch(7):
        pass


def test_statistics_have_the_same_keys():
    assert _silent.statistics().keys() == _native.statistics().keys()
