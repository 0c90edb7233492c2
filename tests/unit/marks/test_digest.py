# SPDX-License-Identifier: Apache-2.0
"""The digest of a request's input."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from hotstage_marks import _native

IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)


def test_the_digest_is_xxh64_with_its_published_values(seen):
    seen.library.hotstage_digest.restype = ctypes.c_uint64
    of = lambda data: seen.library.hotstage_digest(data, ctypes.c_uint64(len(data)), ctypes.c_uint64(0))  # noqa: E731
    assert of(b"") == 0xEF46DB3751D8E999
    assert of(b"a") == 0xD24EC4F1A98C6E5B
    assert of(b"abc") == 0x44BC2CF5AD770999
    assert of(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1
    assert _native.digest(b"abc") == "44bc2cf5ad770999"


@pytest.mark.parametrize(
    "same", [bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", np.uint8), "abc"]
)
def test_equal_bytes_have_equal_digests_whatever_holds_them(same):
    assert _native.digest(same) == _native.digest(b"abc")


def test_an_image_is_the_same_only_with_the_same_pixels_shape_and_type():
    digest = _native.digest(IMAGE)
    assert digest == _native.digest(IMAGE.copy())
    others = (IMAGE + 1, IMAGE.reshape(4, 2, 3), IMAGE.view(np.int8), IMAGE.tobytes(), IMAGE[:, ::-1])
    assert digest not in {_native.digest(other) for other in others}


def test_a_view_has_the_digest_of_what_it_shows():
    assert _native.digest(IMAGE[:, ::2]) == _native.digest(IMAGE[:, ::2].copy())


def test_several_inputs_count_in_their_order():
    assert _native.digest(b"a", b"b") not in {_native.digest(b"b", b"a"), _native.digest(b"ab")}


@pytest.mark.parametrize("nothing", [(), (None,), (b"a", object()), (3.5,), ("\ud800",)])
def test_what_has_no_bytes_has_no_digest(nothing):
    assert _native.digest(*nothing) == ""


@pytest.mark.parametrize(
    ("given", "carried"),
    [
        ("44bc2cf5ad770999", 0x44BC2CF5AD770999),
        (7, 7),
        (None, 0),
        ("", 0),
        ("44bc", 0),
        ("no hex at all..!", 0),
        (-1, 0),
        (2**64, 0),
        (object(), 0),
    ],
)
def test_a_request_carries_its_digest_or_none(marks, seen, given, carried):
    with marks.request("r-1", traceparent="00-" + "a" * 52, digest=given) as request:
        assert request.digest == (f"{carried:016x}" if carried else "")
    assert seen.request.input_digest == carried
    assert seen.request.traceparent == b"00-" + b"a" * 52


def test_a_request_carries_its_digest_from_c(seen):
    begin = seen.library.hotstage_request_begin_with_digest
    begin(b"r-1", b"/v1", None, None, None, ctypes.c_uint64(99))
    assert (seen.request.id, seen.request.input_digest) == (b"r-1", 99)
