# SPDX-License-Identifier: Apache-2.0
"""Requests and responses as values."""

from __future__ import annotations

import gzip

import pytest

from hotstage.api.message import ApiError, Peer, Request, Response
from hotstage.api.overrides import OverrideOrder


def a_request(query=None, headers=None, body=b""):
    return Request("GET", ("v1", "x"), query or {}, headers or {}, body, Peer("127.0.0.1"))


def test_numbers_have_a_default_and_bounds():
    assert a_request().integer("limit", 5, 1, 10) == 5
    assert a_request({"limit": "7"}).integer("limit", 5, 1, 10) == 7
    assert a_request({"seconds": "1.5"}).number("seconds", 5, 1, 10) == 1.5


@pytest.mark.parametrize("text", ["0", "11", "x", "", "1.5", "nan", "1e99", "٣" * 40])
def test_a_number_out_of_bounds_or_none_at_all_is_a_400(text):
    with pytest.raises(ApiError) as caught:
        a_request({"limit": text}).integer("limit", 5, 1, 10)
    assert (caught.value.status, caught.value.code) == (400, "bad_parameter")


def test_nan_is_no_number_of_seconds():
    with pytest.raises(ApiError):
        a_request({"seconds": "nan"}).number("seconds", 5, 1, 10)


def test_a_choice_is_one_of_the_list():
    assert a_request({"state": "open"}).choice("state", "all", ("open", "all")) == "open"
    with pytest.raises(ApiError):
        a_request({"state": "OPEN"}).choice("state", "all", ("open", "all"))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"action":"explode"}', b'{"action":"reset","x":1}', b"\xff"]
)
def test_a_body_of_the_wrong_shape_is_a_400(body):
    with pytest.raises(ApiError) as caught:
        a_request(body=body).decode(OverrideOrder)
    assert caught.value.status == 400


def test_a_client_that_has_the_body_gets_304_without_one():
    response = Response(200, b"x" * 9_000, etag='W/"1"')
    for known in ('W/"1"', '"1"', 'W/"0", W/"1"', "*"):
        answer = response.for_request(a_request(headers={"if-none-match": known}))
        assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", 'W/"1"')
    assert response.for_request(a_request(headers={"if-none-match": 'W/"2"'})).status == 200


def test_long_bodies_are_compressed_and_short_ones_are_not():
    asking = a_request(headers={"accept-encoding": "gzip, br"})
    long = Response(200, b"x" * 9_000).for_request(asking)
    assert gzip.decompress(long.body) == b"x" * 9_000
    assert "Content-Encoding" not in Response(200, b"x" * 99).for_request(asking).headers


def test_an_error_says_what_and_the_remedy():
    response = ApiError(404, "no_such_window", "no such window", "list them").response()
    assert response.status == 404
    assert (
        response.body
        == b'{"error":{"code":"no_such_window","message":"no such window","remedy":"list them"}}'
    )
