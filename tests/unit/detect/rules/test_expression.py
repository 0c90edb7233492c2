# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from hotstage.detect.rules.expression import ExpressionError, parse, seconds_of
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.history import History


def frame(at_s=0, stale=(), **columns):
    values = np.full((1, len(COLUMNS)), np.nan)
    for name, value in columns.items():
        values[0, COLUMN_INDEX[name]] = value
    return Frame(round(at_s * 1e9), (HOST,), values, frozenset(stale))


def holds(text, *frames):
    history = History(600)
    for each in frames:
        history.append(each)
    return parse(text).holds(frames[-1], history, HOST)


@pytest.mark.parametrize(
    ("text", "columns", "verdict"),
    [
        ("launch_rate > 10", {"launch_rate": 11}, True),
        ("launch_rate > 10", {"launch_rate": 10}, False),
        ("launch_rate > 10", {}, None),
        ("not launch_rate > 10", {}, None),
        ("launch_rate > 10 or inflight > 0", {"inflight": 1}, True),
        ("launch_rate > 10 or inflight > 0", {"inflight": 0}, None),
        ("launch_rate > 10 and inflight > 0", {"inflight": 0}, False),
        ("launch_rate > 10 and inflight > 0", {"inflight": 1}, None),
        ("0 < inflight <= 3", {"inflight": 3}, True),
        ("0 < inflight <= 3", {"inflight": 4}, False),
        ("(launch_rate - 2) * 3 / inflight + 1 == 10", {"launch_rate": 8, "inflight": 2}, True),
        ("launch_rate / inflight > 0", {"launch_rate": 1, "inflight": 0}, None),
        ("-launch_rate < -5", {"launch_rate": 6}, True),
        ("inflight != 2", {"inflight": 2}, False),
    ],
)
def test_numbers_compare_and_unknown_stays_unknown(text, columns, verdict):
    assert holds(text, frame(**columns)) is verdict


def test_functions_look_back_over_a_duration():
    frames = [frame(at, inflight=at, requests_ended=10 * at) for at in range(11)]
    assert holds('avg(inflight, "4s") == 8.5', *frames) is True
    assert holds('max(inflight, "1m") == 10', *frames) is True
    assert holds("min(inflight, 3) == 8", *frames) is True
    assert holds('quantile(inflight, 0.5, "5s") == 8', *frames) is True
    assert holds('rate(requests_ended, "5s") == 10', *frames) is True


def test_unknown_points_are_left_out_and_a_counter_that_fell_is_unknown():
    assert holds('avg(inflight, "9s") == 2', frame(0, inflight=2), frame(1), frame(2, inflight=2)) is True
    assert holds('avg(inflight, "9s") == 2', frame(0), frame(1)) is None
    assert (
        holds('rate(requests_ended, "9s") > 0', frame(0, requests_ended=9), frame(1, requests_ended=2))
        is None
    )


def test_unless_stale_gives_no_verdict_while_a_source_is_stale():
    assert holds("inflight > 0 unless stale", frame(inflight=1)) is True
    assert holds("inflight > 0 unless stale", frame(inflight=1, stale={"calls"})) is None
    assert holds("inflight > 0", frame(inflight=1, stale={"calls"})) is True


def test_the_left_side_of_the_first_comparison_is_the_value_shown():
    expression = parse("inflight * 2 > 3 and launch_rate > 0")
    assert expression.value(frame(inflight=4), History(9), HOST) == 8
    assert expression.columns == ("inflight", "launch_rate")
    assert math.isnan(parse("not inflight > 3").value(frame(), History(9), HOST))


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("launch_rat > 10", 0, "the nearest is `launch_rate`"),
        ("inflight > 0 and lunch_rate > 1", 17, "launch_rate"),
        ("  inflight >", 12, "syntax"),
        ("inflight", 0, "comparison is needed"),
        ("inflight > 'x'", 11, "not allowed"),
        ("__import__('os').system('x') > 0", 0, "not allowed"),
        ("inflight.real > 0", 0, "not allowed"),
        ("inflight[0] > 0", 0, "not allowed"),
        ("(lambda: 1)() > 0", 0, "not allowed"),
        ("[x for x in y] > 0", 0, "not allowed"),
        ("inflight ** 9 > 0", 0, "not allowed"),
        ("inflight in 3", 0, "compare"),
        ("avgg(inflight, '1m') > 0", 0, "the nearest is `avg`"),
        ("avg(inflight) > 0", 0, "is written"),
        ("avg(inflight, 'soon') > 0", 14, "duration"),
        ("quantile(inflight, 7, '1m') > 0", 19, "0 to 1"),
        ("True > 0", 0, "not allowed"),
        ("1 > 0", 0, "no column"),
        ("gpu_power_watts > 0 and inflight > 0", 24, "is a column of"),
        ("", 0, ""),
        ("inflight > 0\x00", 13, "null"),
    ],
)
def test_what_is_not_allowed_is_refused_with_its_place(text, position, says):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position
    assert says in caught.value.message


def test_hostile_depth_and_length_are_refused():
    for text in (
        "(" * 500 + "1" + ")" * 500 + " > inflight",
        "not " * 200 + "inflight > 0",
        "-" * 300 + "1 > inflight",
        "x" * 3000,
    ):
        with pytest.raises(ExpressionError):
            parse(text)


def test_the_entities_are_those_that_all_columns_speak_of():
    assert parse("gpu_power_watts > 0").kinds == (EntityKind.gpu,)
    assert parse("unattributed_ratio > 0 and launch_rate > 0").kinds == (
        EntityKind.host,
        EntityKind.process,
        EntityKind.instance,
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        (30, 30),
        ("", None),
        ("5 m", None),
        (-1, None),
        (True, None),
    ],
)
def test_durations(text, seconds):
    assert seconds_of(text) == seconds
